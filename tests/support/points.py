"""The crash points of the code, by what a crash there costs; see docs/explanation/reliability.md."""

CONTROL = (
    "gateway.before-submit",
    "gateway.after-submit",
    "relay.after-publish",
    "marp.after-planning",
    "marp.after-change",
    "scheduler.before-claim",
    "scheduler.after-claim",
    "controller.before-effect",
    "controller.after-effect",
    "controller.between-arrows",
)
AGENT = (
    "agent.before-journal",
    "agent.after-journal",
    "agent.after-prepared",
    "agent.after-go",
    "agent.after-shim-start",
    "agent.after-started",
    "agent.before-exited",
    "agent.after-exited",
    "agent.after-clean",
    "agent.after-publish",
)
SHIM = ("shim.after-run", "shim.after-ranks", "shim.before-exit")  # they cost an attempt
CANCEL = ("gateway.after-cancel", "agent.after-tombstone")
REFUSAL = ("agent.after-refused",)
DISPLACE = ("scheduler.before-displace", "scheduler.after-displace")  # while a job is stopped
# while a job's next attempt gets ready, and takes over
MOVE = (
    ("scheduler.before-warm", "agent.after-prepared", "agent.after-release"),
    ("scheduler.after-warm", "agent.after-warm-up", "controller.between-arrows"),
    ("controller.before-effect", "agent.after-warm", "agent.after-go"),
)
