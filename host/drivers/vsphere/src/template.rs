//! Templates, and the hardware that a clone gets different from its template.

use polity_driver_sdk::prelude::*;
use polity_driver_sdk::xml::Element;

use crate::devices::{self, DEVICES, Device};
use crate::moid::Moid;
use crate::properties::{self, Object, Property};
use crate::services::Services;
use crate::soap::typed;

const IS_TEMPLATE: Property = Property::text("config.template");

/// The KiB in a GiB.
const KIB: i64 = 1 << 20;

/// The types of backings with which a disk can grow in a clone. They begin with the same fields.
const FILES: [&str; 2] = ["VirtualDiskFlatVer2BackingInfo", "VirtualDiskSeSparseBackingInfo"];

/// A template with its hardware.
pub(crate) struct Template<'a> {
    /// The name in the arguments.
    name: &'a str,
    object: Object,
}

/// The failure of a name for which there is no template.
pub(crate) fn no_template(name: &str) -> Failure {
    failure(Code::NotFound, format!("there is no template {name:?}"))
}

/// Reads a template. A VM that is not a template contains data of its owner, so it counts as absent.
pub(crate) async fn read<'a>(
    cx: &Context,
    services: &Services,
    name: &'a str,
    of: &Moid,
) -> Result<Template<'a>, Failure> {
    let object = properties::read(cx, services, of, &[IS_TEMPLATE, DEVICES]).await?;
    match object.text(&IS_TEMPLATE)? {
        "true" => Ok(Template { name, object }),
        "false" => Err(no_template(name)),
        _ => Err(failure(
            Code::Unavailable,
            format!("vCenter does not show the configuration of template {name:?} now"),
        )),
    }
}

impl Template<'_> {
    /// The edits that remove the interfaces of the template.
    pub(crate) fn without_cards(&self) -> Result<Vec<Element>, Failure> {
        let devices = devices::read(&self.object)?;
        Ok(devices
            .iter()
            .filter(|device| device.is_card())
            .map(removed)
            .collect())
    }

    /// The edit that grows the disk to this size; `None` if the disk has this size already. As in the simulation, the template
    /// must have exactly one disk.
    pub(crate) fn grown(&self, gib: u64) -> Result<Option<Element>, Failure> {
        let devices = devices::read(&self.object)?;
        let disks: Vec<&Device<'_>> = devices.iter().filter(|device| device.is_disk()).collect();
        let [disk] = disks[..] else {
            return Err(self.unfit(format!(
                "has {} disks, but diskGiB needs a template with one disk",
                disks.len()
            )));
        };
        let wanted = i64::try_from(gib).ok().and_then(|gib| gib.checked_mul(KIB));
        let wanted = wanted.ok_or_else(|| self.unfit(format!("cannot have a disk of {gib} GiB")))?;
        match disk.number("capacityInKB") {
            Some(capacity) if capacity == wanted => Ok(None),
            Some(capacity) if capacity < wanted => self.edited(disk, wanted).map(Some),
            Some(capacity) => Err(self.unfit(format!(
                "has a disk of {capacity} KiB, which cannot shrink to {gib} GiB"
            ))),
            None => Err(self.unfit("does not show how large its disk is".to_owned())),
        }
    }

    fn edited(&self, disk: &Device<'_>, capacity: i64) -> Result<Element, Failure> {
        if !FILES.contains(&disk.backing()) {
            return Err(self.unfit(format!("has a disk on {}, which cannot grow", disk.backing())));
        }
        let given = |element: &'static str, path: &str| {
            let text = Some(disk.text(path)).filter(|text| !text.is_empty());
            text.map(|text| Element::text(element, text))
        };
        let mut backing = typed("backing", disk.backing())
            .with_all(given("fileName", "backing/fileName"))
            .with_all(given("diskMode", "backing/diskMode"));
        if disk.backing() == FILES[0] {
            backing = backing.with_all(given("thinProvisioned", "backing/thinProvisioned"));
        }
        let device = typed("device", disk.kind())
            .with_all(given("key", "key"))
            .with(backing)
            .with_all(given("controllerKey", "controllerKey"))
            .with_all(given("unitNumber", "unitNumber"))
            .with(Element::text("capacityInKB", capacity.to_string()));
        Ok(changed("edit", device))
    }

    fn unfit(&self, why: String) -> Failure {
        failure(
            Code::InvalidArgument,
            format!("the template {:?} {why}", self.name),
        )
    }
}

fn removed(card: &Device<'_>) -> Element {
    changed(
        "remove",
        typed("device", card.kind()).with(Element::text("key", card.text("key"))),
    )
}

fn changed(operation: &str, device: Element) -> Element {
    Element::new("deviceChange")
        .with(Element::text("operation", operation))
        .with(device)
}
