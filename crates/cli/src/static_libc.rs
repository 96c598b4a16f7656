//! The C library inside a static binary.

// The library has no other interface for it.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};

unsafe extern "C" {
    /// Sets the services in which a database is looked up, instead of those of `nsswitch.conf`
    /// ([glibc's `nss/nss.h`](https://sourceware.org/git/?p=glibc.git;a=blob;f=nss/nss.h)).
    fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
}

/// Databases, and the services that are part of the library.
const LOOKUPS: [(&CStr, &CStr); 3] = [
    (c"passwd", c"files"),
    (c"group", c"files"),
    (c"hosts", c"files dns"),
];

/// Makes the library look up users, groups and hosts by itself. For other services it would load
/// the system's modules, which need the system's own C library, whose version may be another one.
///
/// To be called before there are threads.
pub(crate) fn load_nothing() {
    for (database, services) in LOOKUPS {
        // SAFETY: both are strings that end with NUL, and are only read; nobody else looks up
        // anything yet.
        let set = unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
        // It fails for databases that it does not know alone.
        assert_eq!(set, 0, "the C library does not know {database:?}");
    }
}
