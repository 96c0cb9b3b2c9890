//! What the periods are for: rows of tries, and what a binding may say.

use polity_sdk::contract::RetryRequest;
use polity_sdk::test::retry_request;
use polity_sdk::{Code, Failure, RetryClass, Wait, step};
use serde_json::{Value, json};

fn wait(class: RetryClass, code: Option<Code>, config: &Value) -> u64 {
    let request = RetryRequest {
        failure: code.map(|code| Failure::new(code, "said the cloud")),
        seed: 1,
        config: config.to_string(),
        ..retry_request(class)
    };
    match step::retry(request, mcm_retry::decide) {
        Wait::After(wait) | Wait::OnChange(Some(wait)) => wait,
        Wait::OnChange(None) => panic!("it waits for a time"),
    }
}

#[test]
fn a_change_of_the_binding_changes_every_period_without_a_rebuild() {
    let config = json!({"conflict": "1ms", "short": "2ms", "medium": "3ms", "long": "4ms", "resourceExhausted": "5ms"});
    let classes = [
        RetryClass::Conflict,
        RetryClass::Short,
        RetryClass::Medium,
        RetryClass::Long,
    ];
    assert_eq!(classes.map(|class| wait(class, None, &config)), [1, 2, 3, 4]);
    assert_eq!(wait(RetryClass::Long, Some(Code::ResourceExhausted), &config), 5);
}

#[test]
fn a_configuration_with_an_unknown_field_is_no_hot_loop() {
    assert_eq!(wait(RetryClass::Short, None, &json!({"shrot": "1s"})), 60_000);
}

#[test]
fn a_policy_that_breaks_its_contract_is_not_called_every_five_seconds() {
    let request = RetryRequest {
        failure: Some(Failure {
            operation: Some("quarantine".to_owned()),
            ..Failure::new(Code::Internal, "out of fuel")
        }),
        ..retry_request(RetryClass::Short)
    };
    assert_eq!(step::retry(request, mcm_retry::decide), Wait::After(180_000));
}

#[test]
fn the_defaults_are_in_the_schema() {
    let manifest = mcm_retry::manifest().into_contract();
    let schema = manifest.config_schema;
    assert_eq!(schema["properties"]["conflict"]["default"], "200ms");
    assert_eq!(schema["additionalProperties"], false);
}
