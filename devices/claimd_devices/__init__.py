"""The GPUs of a node, as the kernel shows them. This package does not know Kubernetes.

    gpu                 the types: Gpu, DeviceNode, Skipped, Inventory, Rules, Roots

Which GPUs the node has:

    scan                one look at the node: scan(roots, rules) -> Inventory
    watch               runs a scan whenever something may have changed; has the last Inventory
    uevents             the kernel's messages that a device has changed
    vendors             the table of vendors, one row for each
    nvidia, amd, intel  read what one vendor's driver shows; they never import each other
    nvidia_ids, …       facts that follow from the PCI ids, where the driver shows none
    vfio                GPUs that vfio-pci has, for virtual machines
    drm, kfd, mig       device nodes, AMD's compute topology, NVIDIA's MIG instances
    amdgpu              chips and partitions of AMD, for readers that may not read KFD's files
    libraries           NVIDIA's libraries on the host
    pci, numa, sysfs    the bus, the NUMA nodes, and single files of the kernel's trees
    deadline            ends a scan in which a read never returns
    failures            distinguishes our own errors from those of the hardware

How healthy the GPUs are:

    monitor             checks health periodically and after uevents; has the last HealthReport
    symptoms, kmsg      what one check reads: the files of a GPU and the kernel log
    health              derives findings from symptoms and events, with hysteresis; does no I/O

Without hardware:

    capture, tar        stores what a scan reads in a file, and restores it
    fake                writes a /sys, /proc and /dev that the same scanner reads
    faults              injects faults into the GPUs of a fake tree, and heals them

The plugin receives `gpu.Inventory` and `health.HealthReport`. docs/new-vendor.md explains how to
add a vendor: a module that reads, a module that writes fakes, and one table row for each.
"""
