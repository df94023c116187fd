"""What can be wrong with the input of a simulation."""

from frenzy_shared.errors import BadRequest


class InvalidTrace(BadRequest):
    """A trace cannot be read, or a job in it is impossible."""


class InvalidCluster(BadRequest):
    """A cluster file cannot be read, or describes no usable cluster."""


class InvalidScenario(BadRequest):
    """A knob of the simulation has an impossible value, or a policy's name is unknown."""
