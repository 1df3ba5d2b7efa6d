"""What the kernel says of a node's GPUs. Nothing here has heard of Kubernetes.

    gpu                 the types: Gpu, DeviceNode, Skipped, Inventory, Rules, Roots
    scan                one look at the node: scan(roots, rules) -> Inventory
    watch               a look whenever something may have changed, and the last Inventory
    uevents             the kernel's own word that something changed
    nvidia, amd, intel  what one vendor's driver tells of a GPU; they never import each other
    vfio                what holds GPUs for virtual machines
    drm, kfd, mig       what drivers show beside the bus: nodes, AMD's compute side, NVIDIA's instances
    pci, numa, sysfs    the trees that they read, from the top down to one file
    families, libs      what ids tell of a generation; a vendor's libraries on the host
    capture             what a scan reads, into a file and back
    fake                writes a /sys, /proc and /dev that the same scanner reads

What crosses to the other side is `gpu.Inventory`. A new vendor is one module and one row in
`scan.VENDORS`.
"""
