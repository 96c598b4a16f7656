//! Listening sockets of daemons that report their addresses to the monitors.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use tokio::net::TcpListener;

/// Listens at the first free port of a range (`ms_bind_port_min` to `ms_bind_port_max`), so that a
/// firewall can know the ports. They lie below those that the system gives to outgoing connections:
/// one of these could take the port of a daemon that is down, and a client that dials that daemon
/// on its own host might connect to itself.
///
/// # Errors
/// What the system says; where all ports are taken, `AddrInUse` with the range.
pub async fn bind(ip: IpAddr, ports: RangeInclusive<u16>) -> io::Result<TcpListener> {
    let (min, max) = (*ports.start(), *ports.end());
    let failed = |kind, what: &dyn std::fmt::Display| {
        io::Error::new(
            kind,
            format!("unable to bind to {ip} on any port in range {min}-{max}: {what}"),
        )
    };
    for port in ports {
        match TcpListener::bind(SocketAddr::new(ip, port)).await {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            other => return other.map_err(|e| failed(e.kind(), &e)),
        }
    }
    Err(failed(io::ErrorKind::AddrInUse, &"all are in use"))
}
