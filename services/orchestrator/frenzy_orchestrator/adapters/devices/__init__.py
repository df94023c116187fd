"""Where accelerators come from: NVML, or emulation on a machine that has none."""
