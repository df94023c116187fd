"""How packages that a part of Frenzy needs are installed: Frenzy is on no package index."""


def install(extra: str) -> str:
    """Return the hint that installs an extra: server, node, local, bench or all."""
    return f"in a checkout of Frenzy: pip install '.[{extra}]'"
