"""What the kernel says of a node's GPUs. Nothing here has heard of Kubernetes.

    gpu                 the types: Gpu, DeviceNode, Skipped, Inventory, Rules, Roots

What GPUs there are:

    scan                one look at the node: scan(roots, rules) -> Inventory
    watch               a scan whenever something may have changed, and the last Inventory
    uevents             the kernel's own word that something changed
    vendors             the table of vendors, a row each
    nvidia, amd, intel  what one vendor's driver tells of a GPU; they never import each other
    nvidia_ids, …       what PCI ids tell of a vendor's GPUs where the driver is silent
    vfio                what holds GPUs for virtual machines
    drm, kfd, mig       what drivers show beside the bus: nodes, AMD's compute side, MIG instances
    amdgpu              what amdgpu shows of chips and partitions to who may not read KFD's files
    libraries           NVIDIA's libraries on the host
    pci, numa, sysfs    the trees that they read, from the top down to one file
    deadline            reads that may never come back

How they are:

    monitor             health checks by the clock and by uevent, and the last HealthReport
    symptoms, kmsg      what one check reads: the files of a GPU, the kernel's log
    health              pure: what follows from symptoms and events, with hysteresis

Without hardware:

    capture, tar        what a scan reads, into a file and back
    fake                writes a /sys, /proc and /dev that the same scanner reads
    faults              makes a GPU of a fake tree sick, and well again

What crosses to the other side is `gpu.Inventory` and `health.HealthReport`. docs/new-vendor.md tells
how a vendor is added: a module that reads, one that writes fakes, and a row for each.
"""
