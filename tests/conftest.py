"""What holds for every test: hypothesis does not judge the speed of a machine that others use too."""

from hypothesis import HealthCheck, settings

settings.register_profile("frenzy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("frenzy")
