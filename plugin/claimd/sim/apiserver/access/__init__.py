"""Who asks, and may they: tokens, RBAC, impersonation, admission and its policies."""
