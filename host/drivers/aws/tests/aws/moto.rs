//! Tests of the driver against moto, an independent mock of AWS.
//!
//! ```text
//! pip install 'moto[ec2,server]==5.2.5'; moto_server -p 5000
//! POLITY_MOTO=127.0.0.1:5000 cargo test -p polity-driver-aws -- --ignored
//! ```

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use polity_driver_sdk::test::Reply;
use polity_driver_sdk::{Code, HttpRequest, Piece};
use serde_json::json;

use crate::ec2::{Object, over};

/// moto reads the region in it, and checks nothing.
const SIGNATURE: &str = "AWS4-HMAC-SHA256 Credential=AKIA/20260101/eu-central-1/ec2/aws4_request, SignedHeaders=host, Signature=x";

fn address() -> String {
    std::env::var("POLITY_MOTO").expect("POLITY_MOTO is the address of moto")
}

/// Sends a form. HTTP 1.0, because its body ends with the connection.
fn post(form: &str) -> (u16, String) {
    let mut to = TcpStream::connect(address()).unwrap();
    let head = format!(
        "POST / HTTP/1.0\r\nHost: ec2\r\nAuthorization: {SIGNATURE}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n",
        form.len()
    );
    to.write_all(format!("{head}{form}").as_bytes()).unwrap();
    let mut answer = String::new();
    to.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn answer(request: &HttpRequest) -> Reply {
    let piece = |piece: &Piece| match piece {
        Piece::Text(text) => text.clone(),
        // The host would put the user data in; moto expects base64.
        Piece::Sealed(_) => "am9pbg%3D%3D".to_owned(),
    };
    let (status, body) = post(&request.body.iter().map(piece).collect::<String>());
    Reply::new(status, body)
}

/// The text of the first element of this name.
fn first<'a>(body: &'a str, name: &str) -> &'a str {
    let (_, rest) = body.split_once(&format!("<{name}>")).unwrap();
    rest.split_once('<').unwrap().0
}

fn of(owner: &str, key: &str) -> Object {
    let mut object = over(Box::new(answer));
    object.play.owner = owner.to_owned();
    object.play.key = format!("{key}-{}", std::process::id());
    object
}

#[test]
#[ignore = "needs moto"]
fn a_machine_lives_and_dies_on_moto() {
    let images = post("Action=DescribeImages&Version=2016-11-15").1;
    let subnets = post("Action=DescribeSubnets&Version=2016-11-15").1;
    let spec = json!({
        "ami": first(&images, "imageId"),
        "machineType": "m5.large",
        "region": "eu-central-1",
        "blockDevices": [{"ebs": {"volumeSize": 20, "volumeType": "gp3", "encrypted": true}}],
        "networkInterfaces": [{"subnetID": first(&subnets, "subnetId")}],
        "tags": {"kubernetes.io/cluster/prod": "1"},
    });
    let owner = format!("owner-{}", std::process::id());
    let mut us = of(&owner, "key-1");
    assert_eq!(
        us.perform("machine.status", json!({"name": "web-1"}))
            .unwrap_err()
            .code,
        Code::NotFound
    );
    let secret = json!({"$secret": {"name": "s", "key": "k"}});
    let arguments = json!({"name": "web-1", "providerSpec": spec, "userData": secret});
    let made = us.perform("machine.create", arguments).unwrap();
    let known = json!({"name": "web-1", "providerID": made["providerID"], "providerSpec": spec});
    for arguments in [&known, &json!({"name": "web-1", "providerSpec": spec})] {
        let seen = us.perform("machine.status", arguments.clone()).unwrap();
        assert_eq!(
            (&seen["providerID"], &seen["initialized"]),
            (&made["providerID"], &json!(false))
        );
    }
    assert_eq!(
        us.perform("machine.initialize", known.clone()).unwrap(),
        json!({})
    );
    assert_eq!(
        us.perform("machine.status", known.clone()).unwrap()["initialized"],
        true
    );
    let listed = us.perform("machine.list", json!({})).unwrap().to_string();
    assert!(listed.contains(made["providerID"].as_str().unwrap()), "{listed}");
    let mut thief = of("thief", "key-2");
    assert_eq!(
        thief.perform("machine.delete", known.clone()).unwrap_err().code,
        Code::PermissionDenied
    );
    assert_eq!(us.perform("machine.delete", known.clone()).unwrap(), json!({}));
    assert_eq!(
        us.perform("machine.status", known).unwrap_err().code,
        Code::NotFound
    );
}
