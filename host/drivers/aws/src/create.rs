//! Creates a machine.
//!
//! The driver first reads the owner's machines of this name, and the image for the name of its root device. These are
//! reads, so nothing is in doubt if one of them fails. Then one request creates the instance, its disks and its marks
//! together. So an instance never exists without an owner.

use polity_driver_sdk::Effect;
use polity_driver_sdk::prelude::*;

use crate::error;
use crate::instance::{Instance, OF_RUN};
use crate::launch;
use crate::look;
use crate::manifest;
use crate::query::Query;
use crate::spec::{Spec, invalid};
use crate::validate::ROOT;

/// The action that shows images.
const IMAGES: &str = "DescribeImages";

/// A look before the create.
#[derive(Clone, Copy)]
enum Before {
    /// Checks that the owner has no machine of this name. EC2 itself allows any number of instances with one name.
    Name,
    /// Reads the name of the image's root device.
    Image,
}

/// Creates the machine. The answer names it.
pub(crate) async fn perform(cx: &Context) -> Result<Value, Failure> {
    let spec = Spec::complete(cx)?;
    manifest::check_region(cx, &spec.region)?;
    let looks = [Before::Name, Before::Image].map(|what| what.look(cx, &spec));
    let mut root_device = String::new();
    for seen in join_all(looks).await {
        root_device = seen?;
    }
    let root = launch::request(cx, &spec, &root_device).create(cx).await?;
    let made = Instance::all(&root, OF_RUN, launch::ACTION, Effect::Create)?;
    match &made[..] {
        [instance] => Ok(instance.created()),
        other => {
            let what = format!("it has {} instances; exactly one was expected", other.len());
            Err(error::unreadable(launch::ACTION, &what, Effect::Create))
        }
    }
}

impl Before {
    /// Looks. Returns the name of the root device, or an empty text.
    async fn look(self, cx: &Context, spec: &Spec) -> Result<String, Failure> {
        match self {
            Before::Name => vacant(cx).await.map(|()| String::new()),
            Before::Image => root_device(cx, spec).await,
        }
    }
}

/// Checks that the owner has no machine of this name.
async fn vacant(cx: &Context) -> Result<(), Failure> {
    let name = cx.argument("name");
    let seen = look::by_name(cx, name).await?;
    match look::of_name(cx, &seen, name).first() {
        None => Ok(()),
        Some(other) => {
            let message = format!("the owner already has a machine {name}: {}", other.provider_id());
            Err(failure(Code::AlreadyExists, message))
        }
    }
}

/// The name of the image's root device; empty if no disk needs it.
async fn root_device(cx: &Context, spec: &Spec) -> Result<String, Failure> {
    let disks = &spec.block_devices;
    if disks.len() != 1 && disks.iter().all(|disk| disk.device_name != ROOT) {
        return Ok(String::new());
    }
    let query = Query::new(IMAGES).field("ImageId.1", &*spec.ami);
    let root = query
        .keep("imagesSet.item.", &["imageId", "rootDeviceName"])
        .read(cx)
        .await?;
    let images = tree::all(&root, "imagesSet/item");
    let image = images
        .into_iter()
        .find(|image| tree::text(image, "imageId") == spec.ami);
    let image = image.ok_or_else(|| invalid("ami", format!("there is no image {}", spec.ami)))?;
    match tree::text(image, "rootDeviceName") {
        "" => Err(invalid(
            "ami",
            format!("the image {} has no root device", spec.ami),
        )),
        name => Ok(name.to_owned()),
    }
}
