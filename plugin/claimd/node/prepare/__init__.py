"""What the kubelet asks for: claims planned, kept as checkpoints, handed to the container runtime
as CDI specs, and given back.
"""
