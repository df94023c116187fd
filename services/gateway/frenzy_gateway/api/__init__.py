"""Routes, one module per resource; ``application.build_api`` puts them together."""
