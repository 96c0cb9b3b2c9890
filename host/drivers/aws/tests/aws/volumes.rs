//! The ids of volumes.

use polity_driver_sdk::Code;
use serde_json::json;

use crate::ec2::{object, server};

#[test]
fn the_volumes_of_ebs_are_named_and_no_others() {
    let mut owner = object(&server());
    let volumes = json!([
        {"capacity": {"storage": "1Gi"}, "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1", "fsType": "ext4"}},
        {"csi": {"driver": "efs.csi.aws.com", "volumeHandle": "fs-1"}},
        {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": ""}},
        {"awsElasticBlockStore": {"volumeID": "vol-2", "fsType": "ext4"}},
        {"awsElasticBlockStore": {"volumeID": "aws://eu-central-1a/vol-3"}},
        {"awsElasticBlockStore": {"volumeID": "aws:///vol-4"}},
        {"awsElasticBlockStore": {"volumeID": "x/vol-5"}},
        {"awsElasticBlockStore": {"volumeID": "gone"}},
        {"hostPath": {"path": "/"}},
        {},
    ]);
    let answer = owner
        .perform("machine.volumes", json!({"volumes": volumes}))
        .unwrap();
    assert_eq!(answer, json!({"volumeIDs": ["vol-1", "vol-2", "vol-3", "vol-4"]}));
    assert_eq!(owner.play.sent, [], "it needs no request");
    assert_eq!(
        owner.perform("machine.volumes", json!({"volumes": []})).unwrap(),
        json!({"volumeIDs": []})
    );
}

#[test]
fn a_volume_that_cannot_be_read_is_an_invalid_argument() {
    let mut owner = object(&server());
    for volumes in [
        json!([{"csi": {"driver": 7, "volumeHandle": "vol-1"}}]),
        json!([{"csi": {}}]),
    ] {
        let failure = owner
            .perform("machine.volumes", json!({"volumes": volumes}))
            .unwrap_err();
        assert_eq!(failure.code, Code::InvalidArgument, "{}", failure.message);
    }
}
