"""The keeper of one attempt's ranks on one node: a small process that outlives the agent.

Standard library only. It must start fast, hold nothing that can fail, and keep running while the
agent is restarted or upgraded; the agent and the shim meet only through files of the attempt's
folder, signals, and device locks.
"""
