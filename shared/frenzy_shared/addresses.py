"""Which addresses stay on this machine."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address is this machine's own, unreachable from others."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
