"""What people see: the status of claims, Events, the health of GPUs in Kubernetes' words, and who
else hands them out.
"""
