"""What the scheduler sees: the inventory as ResourceSlices, written to the API server and kept so."""
