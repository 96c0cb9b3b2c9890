//! A vCenter by the simulator of govmomi, in a process of its own.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::kubernetes::{Found, fetch};
use crate::server::Server;
use crate::skip::Skip;

/// Who the tests are at the vCenter.
const LOGIN: &str = "<userName>administrator@vsphere.local</userName><password>simulated-p4ssword</password>";
/// The namespace of the vCenter's API.
const VIM: &str = "xmlns=\"urn:vim25\"";

/// A server, ended when dropped.
pub struct Vcsim {
    server: Server,
    /// Where it keeps its datastores.
    _files: TempDir,
}

/// A VM as the vCenter shows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vm {
    /// Its name.
    pub name: String,
    /// Its instance UUID.
    pub uuid: String,
    /// Whether it runs.
    pub is_on: bool,
    /// The number of its processors.
    pub cpus: String,
    /// Its memory in MiB.
    pub memory: String,
    /// Whether its guest sees the UUIDs of its disks.
    pub has_disk_uuids: bool,
    /// What its guest finds as user data, and how that is encoded.
    pub user_data: Option<(String, String)>,
}

impl Vcsim {
    /// Starts a server with one template and without VMs. Where its program is not here yet, Go builds it, once:
    /// minutes, with progress on stderr.
    ///
    /// # Errors
    /// [`Skip`] where Go is missing or too old.
    ///
    /// # Panics
    /// It cannot be built, or does not start; instead of the skip when `POLITY_NO_SKIP=1`.
    pub fn start(arguments: &[&str]) -> Result<Self, Skip> {
        static FOUND: OnceLock<Found> = OnceLock::new();
        let folder = FOUND.get_or_init(|| fetch(&["vcsim"])).folder("vcsim")?;
        let files = tempfile::tempdir().expect("a folder");
        let server = Server::start(|address| {
            let mut vcsim = Command::new(folder.join("vcsim"));
            vcsim
                .args(["-listen", &address.to_string()])
                .args(arguments)
                .env("TMPDIR", files.path());
            vcsim
        });
        Ok(Vcsim {
            server,
            _files: files,
        })
    }

    /// `127.0.0.1:PORT`
    pub fn address(&self) -> &str {
        self.server.address()
    }

    /// The VMs, sorted by name, without the template.
    ///
    /// # Panics
    /// The vCenter does not say.
    pub fn vms(&self) -> Vec<Vm> {
        let path = |name: &str| format!("<pathSet>{name}</pathSet>");
        let paths = [
            "config.extraConfig",
            "config.flags.diskUuidEnabled",
            "config.instanceUuid",
            "config.name",
            "config.hardware.memoryMB",
            "config.hardware.numCPU",
            "config.template",
            "runtime.powerState",
        ];
        let answer = self.as_user(|session| {
            let view = format!(
                "<CreateContainerView {VIM}><_this type=\"ViewManager\">ViewManager</_this><container type=\"Folder\">group-d1</container>\
                 <type>VirtualMachine</type><recursive>true</recursive></CreateContainerView>"
            );
            let view = self.call(session, &view);
            let view = between(&view, "<returnval type=\"ContainerView\">", "<").expect("a view");
            let select = "<selectSet xsi:type=\"TraversalSpec\"><type>ContainerView</type><path>view</path></selectSet>";
            let properties: String = paths.iter().map(|name| path(name)).collect();
            let asked = format!("<type>VirtualMachine</type>{properties}");
            let object = format!("<obj type=\"ContainerView\">{view}</obj><skip>true</skip>{select}");
            self.properties(session, &asked, &object)
        });
        let objects = answer.split("<obj type=\"VirtualMachine\">").skip(1);
        let mut vms: Vec<Vm> = objects
            .filter(|object| property(object, "config.template") == "false")
            .map(|object| Vm {
                name: property(object, "config.name"),
                uuid: property(object, "config.instanceUuid"),
                is_on: property(object, "runtime.powerState") == "poweredOn",
                cpus: property(object, "config.hardware.numCPU"),
                memory: property(object, "config.hardware.memoryMB"),
                has_disk_uuids: property(object, "config.flags.diskUuidEnabled") == "true",
                user_data: option(object, "guestinfo.userdata")
                    .zip(option(object, "guestinfo.userdata.encoding")),
            })
            .collect();
        vms.sort();
        vms
    }

    /// How many sessions are open, without that of the one who asks.
    ///
    /// # Panics
    /// The vCenter does not say.
    pub fn sessions(&self) -> usize {
        let answer = self.as_user(|session| {
            let asked = "<type>SessionManager</type><pathSet>sessionList</pathSet>";
            let object = "<obj type=\"SessionManager\">SessionManager</obj>";
            self.properties(session, asked, object)
        });
        let sessions = answer.matches("<UserSession>").count();
        sessions.checked_sub(1).expect("a session of who asks")
    }

    /// What one learns in a session, which is ended.
    fn as_user(&self, ask: impl FnOnce(&str) -> String) -> String {
        let manager = "<_this type=\"SessionManager\">SessionManager</_this>";
        let answer = self.call("", &format!("<Login {VIM}>{manager}{LOGIN}</Login>"));
        let session = between(&answer, "<key>", "<").expect("a session");
        let learnt = ask(session);
        self.call(session, &format!("<Logout {VIM}>{manager}</Logout>"));
        learnt
    }

    fn properties(&self, session: &str, asked: &str, object: &str) -> String {
        let call = format!(
            "<RetrieveProperties {VIM}><_this type=\"PropertyCollector\">propertyCollector</_this><specSet>\
             <propSet>{asked}</propSet><objectSet>{object}</objectSet></specSet></RetrieveProperties>"
        );
        self.call(session, &call)
    }

    /// The response to a call of the vCenter's API.
    fn call(&self, session: &str, call: &str) -> String {
        let body = format!(
            "<e:Envelope xmlns:e=\"http://schemas.xmlsoap.org/soap/envelope/\" xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">\
             <e:Body>{call}</e:Body></e:Envelope>"
        );
        // By HTTP 1.0 an answer comes in one piece, and ends with its connection.
        let request = format!(
            "POST /sdk HTTP/1.0\r\nhost: {}\r\ncontent-type: text/xml\r\nsoapaction: urn:vim25/6.5\r\n\
             cookie: vmware_soap_session={session}\r\ncontent-length: {}\r\n\r\n{body}",
            self.address(),
            body.len()
        );
        let mut stream = TcpStream::connect(self.address()).expect("it listens");
        stream.write_all(request.as_bytes()).expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        assert!(answer.contains(" 200 OK"), "{call} is answered {answer}");
        answer
    }
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    Some(text.split_once(before)?.1.split_once(after)?.0)
}

/// The value of a property of an object; empty if it has none.
fn property(object: &str, name: &str) -> String {
    let value = between(object, &format!("<name>{name}</name><val"), "</val>");
    let value = value.and_then(|value| value.split_once('>'));
    value.map_or_else(String::new, |(_, value)| value.to_owned())
}

/// The value of an option (`extraConfig`) of an object.
fn option(object: &str, key: &str) -> Option<String> {
    let options = property(object, "config.extraConfig");
    let value = between(&options, &format!("<key>{key}</key><value"), "</value>")?;
    Some(value.split_once('>')?.1.to_owned())
}
