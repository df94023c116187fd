"""The commands, one module a group; ``frenzy.cli.app.COMMANDS`` names them."""
