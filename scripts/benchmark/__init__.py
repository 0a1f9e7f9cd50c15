"""The parts of scripts/bench. What runs in a peer's environment imports the standard library and that peer only."""
