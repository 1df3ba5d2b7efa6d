"""Virtual machines in which the kernel itself rebinds, hot-plugs and fails devices."""
