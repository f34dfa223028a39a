//! The paths that exist for applications behind the gate.

/// What proxies ask for each request.
pub const AUTHZ: &str = "/api/authz/";
/// What proxies pass on from the hosts of applications.
pub const ON_HOSTS: &str = "/.gatehouse/";
