//! References to managed objects.

use polity_driver_sdk::prelude::*;
use polity_driver_sdk::xml::Element;

/// The type of virtual machines and templates.
pub(crate) const VM: &str = "VirtualMachine";

/// The longest id. Ids of vCenter have about a dozen characters; ids of tasks of a single host have about sixty.
const LONGEST: usize = 128;

/// A managed object: its type, and its id within the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moid {
    /// The type: `VirtualMachine`.
    pub(crate) kind: String,
    /// The id: `vm-42`.
    pub(crate) id: String,
}

impl Moid {
    /// The object of this type and id.
    pub(crate) fn new(kind: &str, id: &str) -> Self {
        Moid {
            kind: kind.to_owned(),
            id: id.to_owned(),
        }
    }

    /// The object that an element refers to; `None` if its text is not an id.
    pub(crate) fn read(element: &Value) -> Option<Self> {
        let kind = plain(element.get("@type")?.as_str()?);
        let id = tree::own_text(element);
        (is_id(kind) && is_id(id)).then(|| Moid::new(kind, id))
    }

    /// The VM that an element refers to; `None` if it refers to something else.
    pub(crate) fn read_vm(element: &Value) -> Option<Self> {
        Moid::read(element).filter(|found| found.kind == VM)
    }

    /// An element that refers to the object.
    pub(crate) fn element(&self, name: &'static str) -> Element {
        Element::text(name, &*self.id).attribute("type", &*self.kind)
    }
}

/// Whether a text is an id of the form that vCenter and single hosts use. No other text is sent as an id.
pub(crate) fn is_id(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=LONGEST).contains(&text.len()) && text.bytes().all(is_part)
}

/// The name of a type without the prefix of its namespace.
pub(crate) fn plain(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_strict() {
        for id in ["vm-42", "group-v3", "haTask-1-vim.VirtualMachine.powerOn-153"] {
            assert!(is_id(id), "{id}");
        }
        let long = "v".repeat(129);
        for id in [
            "",
            "vm 42",
            "vm-42\n",
            "vm/42",
            "vm-42<",
            "vm:42",
            "vm-42\u{e4}",
            &long,
        ] {
            assert!(!is_id(id), "{id:?}");
        }
    }

    #[test]
    fn a_reference_has_a_type_and_an_id() {
        let reference = |kind: &str, id: &str| json!({"@type": kind, "$text": id});
        assert_eq!(
            Moid::read(&reference("vim25:Folder", "f-1")),
            Some(Moid::new("Folder", "f-1"))
        );
        assert_eq!(Moid::read(&json!({"$text": "f-1"})), None);
        assert_eq!(Moid::read(&reference("Folder", "")), None);
        assert_eq!(Moid::read_vm(&reference(VM, "vm-1")), Some(Moid::new(VM, "vm-1")));
        assert_eq!(Moid::read_vm(&reference("Folder", "vm-1")), None);
    }
}
