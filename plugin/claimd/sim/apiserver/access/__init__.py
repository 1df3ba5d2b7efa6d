"""Authentication, authorization and admission: tokens, RBAC, impersonation and policies."""
