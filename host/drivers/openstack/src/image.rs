//! Images of glance.

use polity_driver_sdk::prelude::*;

use crate::api::{Service, read};
use crate::error::{Does, unreadable};
use crate::id::given;

/// `image.get`
pub(crate) async fn get(cx: &Context) -> Result<Value, Failure> {
    bootable(cx, cx.argument("image")).await?;
    Ok(json!({}))
}

/// Succeeds if a server can be booted from the image.
pub(crate) async fn bootable(cx: &Context, image: &str) -> Result<(), Failure> {
    let image = given(image, "image")?;
    let request = Request::get("image").path(["v2", "images", image]);
    let seen = read(cx, Service::Image, request, &["id", "status"]).await?;
    if seen.body["id"] != image {
        return Err(unreadable(
            Service::Image,
            Does::Read,
            &seen,
            "it shows another image",
        ));
    }
    match seen.body["status"].as_str() {
        Some("active") => Ok(()),
        Some(status) => {
            let status: String = status.chars().take(40).collect();
            let message = format!("image {image} is {status:?}: a boot needs an active image");
            Err(failure(Code::FailedPrecondition, message))
        }
        None => Err(unreadable(Service::Image, Does::Read, &seen, "it has no status")),
    }
}
