"""Technology behind the gateway's ports."""
