"""Pure decisions of the node agent."""
