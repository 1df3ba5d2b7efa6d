"""What the scheduler sees: the inventory as ResourceSlices on the API server, and kept so."""
