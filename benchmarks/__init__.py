"""Speed and memory against the peers, measured in one run."""
