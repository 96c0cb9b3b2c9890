//! The inventory: paths, and the objects at them.

use polity_driver_sdk::prelude::*;
use polity_driver_sdk::xml::Element;

use crate::moid::Moid;
use crate::services::Services;
use crate::soap::{Call, flag, lacking};
use crate::{Config, config, fault};

/// A branch of a datacenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Branch {
    /// VMs, templates and their folders.
    Vm,
    /// Clusters, hosts and their resource pools.
    Host,
    /// Datastores.
    Datastore,
    /// Networks and portgroups.
    Network,
}

impl Branch {
    /// The name of the branch. It is the same in every language of vCenter.
    fn name(self) -> &'static str {
        match self {
            Branch::Vm => "vm",
            Branch::Host => "host",
            Branch::Datastore => "datastore",
            Branch::Network => "network",
        }
    }
}

/// The datacenter to which paths belong, if one is named.
pub(crate) struct Datacenter<'a>(Option<&'a str>);

impl<'a> Datacenter<'a> {
    /// The datacenter of the argument, or else of the configuration.
    pub(crate) fn of(argument: &'a str, config: &'a Config) -> Self {
        Datacenter(config::or_default(argument, &config.datacenter))
    }

    /// The complete path, without slashes at its ends. If `given` does not begin with a slash, it is below the branch.
    pub(crate) fn path(&self, branch: Branch, given: &str) -> Result<String, Failure> {
        if given.starts_with('/') {
            return Ok(joined(&[given]));
        }
        let datacenter = self.0.ok_or_else(|| {
            let message = format!(
                "the path {given:?} needs a datacenter: name one in the arguments or in the configuration of the connection"
            );
            failure(Code::InvalidArgument, message)
        })?;
        Ok(joined(&[datacenter, branch.name(), given]))
    }
}

fn joined(parts: &[&str]) -> String {
    let names = parts.iter().flat_map(|part| part.split('/'));
    let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    names.join("/")
}

/// A name as the inventory writes it, also in paths.
pub(crate) fn escaped(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2f").replace('\\', "%5c")
}

/// The name that the inventory writes in this way.
pub(crate) fn unescaped(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let character = match after.get(..2).map(str::to_ascii_lowercase).as_deref() {
            Some("2f") => Some('/'),
            Some("5c") => Some('\\'),
            Some("25") => Some('%'),
            _ => None,
        };
        out.push(character.unwrap_or('%'));
        rest = if character.is_some() { &after[2..] } else { after };
    }
    out + rest
}

/// The object at a path.
pub(crate) async fn at(cx: &Context, services: &Services, path: &str) -> Result<Option<Moid>, Failure> {
    let method = "FindByInventoryPath";
    let found = Call::new(method, &services.search_index)
        .with([Element::text("inventoryPath", path)])
        .keep(["returnval"])
        .read(cx)
        .await?;
    let Some(reference) = tree::first(&found, "returnval") else {
        return Ok(None);
    };
    let read = Moid::read(reference);
    read.map(Some)
        .ok_or_else(|| lacking(method, "reference", fault::Does::Read))
}

/// The object at a path, which must have one of these types. If there is no such object, the failure has this code.
pub(crate) async fn expect(
    cx: &Context,
    services: &Services,
    path: &str,
    kinds: &[&str],
    code: Code,
) -> Result<Moid, Failure> {
    let found = at(cx, services, path).await?;
    let found = found.filter(|found| kinds.contains(&&*found.kind));
    found.ok_or_else(|| failure(code, format!("there is no {} at {path:?}", kinds.join(" or "))))
}

/// The VMs with an instance UUID. The UUID is unique in a vCenter, except for some time after a copy of a VM was registered.
pub(crate) async fn by_instance_uuid(
    cx: &Context,
    services: &Services,
    uuid: &str,
) -> Result<Vec<Moid>, Failure> {
    let method = "FindAllByUuid";
    let parameters = [
        Element::text("uuid", uuid),
        flag("vmSearch", true),
        flag("instanceUuid", true),
    ];
    let found = Call::new(method, &services.search_index)
        .with(parameters)
        .keep(["returnval"])
        .read(cx)
        .await?;
    let hits = tree::all(&found, "returnval").into_iter().map(|hit| {
        let vm = Moid::read_vm(hit);
        vm.ok_or_else(|| lacking(method, "reference to a VM", fault::Does::Read))
    });
    hits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_whole_or_below_its_branch() {
        let config = Config {
            datacenter: Some("/org/DC0/".to_owned()),
            ..Config::default()
        };
        let of_config = Datacenter::of("", &config);
        assert_eq!(of_config.path(Branch::Vm, "a//b").unwrap(), "org/DC0/vm/a/b");
        assert_eq!(of_config.path(Branch::Host, "/DC1/host/c").unwrap(), "DC1/host/c");
        assert_eq!(of_config.path(Branch::Vm, "").unwrap(), "org/DC0/vm");
        let argument = Datacenter::of("DC2", &config);
        assert_eq!(argument.path(Branch::Network, "n").unwrap(), "DC2/network/n");
        let config = Config::default();
        let none = Datacenter::of("", &config);
        assert_eq!(
            none.path(Branch::Vm, "a").unwrap_err().code,
            Code::InvalidArgument
        );
        assert!(none.path(Branch::Vm, "/DC0/vm/a").is_ok());
    }

    #[test]
    fn a_name_is_one_segment_of_a_path() {
        for (name, inventory) in [
            ("plain \u{e4}", "plain \u{e4}"),
            ("a/b\\c%d", "a%2fb%5cc%25d"),
            ("%2f", "%252f"),
            ("", ""),
        ] {
            assert_eq!(escaped(name), inventory);
            assert_eq!(unescaped(inventory), name);
        }
        for (inventory, name) in [
            ("a%2Fb%5C", "a/b\\"),
            ("100%", "100%"),
            ("%zz%2", "%zz%2"),
            ("%\u{e4}", "%\u{e4}"),
        ] {
            assert_eq!(unescaped(inventory), name);
        }
    }
}
