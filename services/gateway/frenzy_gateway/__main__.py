"""Run the gateway: ``python -m frenzy_gateway``, settings from FRENZY_* variables."""

from frenzy_gateway.app import run
from frenzy_gateway.settings import GatewaySettings
from frenzy_shared.runtime import main
from frenzy_shared.settings import load

if __name__ == "__main__":
    main(lambda: run(load(GatewaySettings)))
