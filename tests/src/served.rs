//! A host in a process of its own, whose `--metrics-listen` a test reads.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// A host in a process of its own, ended when dropped.
pub struct Host {
    child: Child,
    address: String,
}

/// The command of a host that serves at this address: `polity run` of this program, with more arguments.
pub fn run<A: AsRef<OsStr>>(program: &str, address: &str, arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(program);
    command
        .args(["run", "--metrics-listen", address])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

impl Host {
    /// Starts [`run`] at a port that is free.
    ///
    /// # Panics
    /// The host does not start.
    pub fn start<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) -> Host {
        let mut child = run(program, "127.0.0.1:0", arguments).spawn().expect("a host");
        let mut lines = BufReader::new(child.stderr.take().expect("its messages")).lines();
        let mut said = Vec::new();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let rest = line.strip_prefix("polity: serving http://");
            let address = rest.and_then(|rest| Some(rest.split_once(": ")?.0.to_owned()));
            said.push(line);
            address
        });
        // What it says later is read, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Host {
            child,
            address: address.unwrap_or_else(|| panic!("it does not say where it serves: {said:#?}")),
        }
    }

    /// A connection on which nothing has been said.
    ///
    /// # Panics
    /// It does not listen.
    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).expect("it listens")
    }

    /// Asks for a path: the status and the body.
    ///
    /// # Panics
    /// There is no answer.
    pub fn get(&self, path: &str) -> (u16, String) {
        let mut stream = self.connect();
        let request = format!("GET {path} HTTP/1.1\r\nhost: polity\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        (code.expect("a status"), body.to_owned())
    }

    /// Asks until the answer has this status. Who waits is ended from outside where that never comes.
    pub fn until(&self, path: &str, wanted: u16) -> String {
        loop {
            match self.get(path) {
                (code, body) if code == wanted => return body,
                _ => std::thread::yield_now(),
            }
        }
    }

    /// Its metrics.
    pub fn metrics(&self) -> String {
        self.get("/metrics").1
    }

    /// The number of its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Where it has ended by itself, there is nothing left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
