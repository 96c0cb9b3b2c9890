//! A published server, such as moto or vcsim, in a process of its own.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

/// A process that listens at an address, ended when dropped.
pub(crate) struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts a program at a port that is free, and waits until it listens there.
    ///
    /// # Panics
    /// It does not start.
    pub(crate) fn start(command: impl FnOnce(SocketAddr) -> Command) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
        let address = free.expect("a port is free");
        let child = command(address)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        let mut server = Server {
            child,
            address: address.to_string(),
        };
        while TcpStream::connect(address).is_err() {
            let ended = server.child.try_wait().expect("it is a child");
            assert!(ended.is_none(), "the server ended with {ended:?}");
            std::thread::yield_now();
        }
        server
    }

    /// `127.0.0.1:PORT`
    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Where it has ended by itself, there is nothing left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
