//! The call that clones. Its elements must be in the order of the schema, because vCenter accepts no other.

use polity_driver_sdk::prelude::*;
use polity_driver_sdk::xml::Element;
use serde::Deserialize;

use crate::inventory::escaped;
use crate::marks::{BASE64, KEY, OWNER, TENANT, USER_DATA, USER_DATA_ENCODING, option};
use crate::moid::Moid;
use crate::soap::flag;

/// The arguments of `vm.clone`, without the sealed argument.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Arguments {
    pub(crate) name: String,
    pub(crate) instance_uuid: String,
    pub(crate) template: String,
    #[serde(default)]
    pub(crate) datacenter: String,
    #[serde(default)]
    pub(crate) folder: String,
    #[serde(default)]
    pub(crate) datastore: String,
    #[serde(default)]
    pub(crate) resource_pool: String,
    pub(crate) cpus: u32,
    pub(crate) cores_per_socket: u32,
    #[serde(rename = "memoryMiB")]
    pub(crate) memory_mib: u32,
    #[serde(default, rename = "diskGiB")]
    pub(crate) disk_gib: Option<u64>,
    pub(crate) networks: Vec<String>,
}

/// Where the new VM is placed.
pub(crate) struct Place {
    pub(crate) folder: Moid,
    /// The datastore; `None` means the datastore of the template.
    pub(crate) datastore: Option<Moid>,
    pub(crate) pool: Moid,
}

/// The parameters of the call.
pub(crate) fn parameters(
    cx: &Context,
    arguments: &Arguments,
    place: &Place,
    devices: Vec<Element>,
) -> [Element; 3] {
    let location = Element::new("location")
        .with_all(
            place
                .datastore
                .as_ref()
                .map(|datastore| datastore.element("datastore")),
        )
        .with(place.pool.element("pool"));
    let spec = Element::new("spec")
        .with(location)
        .with(flag("template", false))
        .with(configuration(cx, arguments, devices))
        .with(flag("powerOn", false));
    [
        place.folder.element("folder"),
        Element::text("name", escaped(&arguments.name)),
        spec,
    ]
}

/// What the VM gets different from its template.
///
/// A template from an OVA may have properties. A guest reads them before its metadata and its user data (cloud-init lists
/// OVF before VMware, in `DI_DSLIST_DEFAULT` of `tools/ds-identify`), so the VM is made without them. In its guest a disk
/// shows its UUID, by which the CSI driver of vSphere finds it. Both as `Clone` of `pkg/services/govmomi/vcenter/clone.go`
/// in Cluster API's provider.
fn configuration(cx: &Context, arguments: &Arguments, devices: Vec<Element>) -> Element {
    let number = |name: &'static str, number: u32| Element::text(name, number.to_string());
    Element::new("config")
        .with(Element::text("instanceUuid", arguments.instance_uuid.as_str()))
        .with(Element::new("flags").with(flag("diskUuidEnabled", true)))
        .with(number("numCPUs", arguments.cpus))
        .with(number("numCoresPerSocket", arguments.cores_per_socket))
        .with(number("memoryMB", arguments.memory_mib))
        .with_all(devices)
        .with_all(options(cx))
        .with(flag("vAppConfigRemoved", true))
}

/// The marks, and the user data if there is any.
fn options(cx: &Context) -> Vec<Element> {
    let mut options = vec![
        option(OWNER, cx.owner()),
        option(TENANT, cx.tenant()),
        option(KEY, cx.key()),
    ];
    if let Some(user_data) = cx.sealed("userData") {
        options.push(option(USER_DATA, user_data.base64()));
        options.push(option(USER_DATA_ENCODING, BASE64));
    }
    options
}
