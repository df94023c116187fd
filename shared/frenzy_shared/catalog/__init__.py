"""Facts that every service needs: GPU models and model presets. Data and look-up, no decisions."""
