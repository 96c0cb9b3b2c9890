//! The contract's WIT as text. Tools can generate bindings or encode a world without the files.

/// The name of the WIT package.
pub const PACKAGE: &str = "polity:policy@0.2.0";
/// `types.wit`: the types that policies and the host share.
pub const TYPES: &str = include_str!("../types.wit");
/// `policy.wit`: the exports of each role, and the worlds.
pub const POLICY: &str = include_str!("../policy.wit");

/// The JSON Schema of the manifest, which `describe` answers.
pub const MANIFEST_SCHEMA: &str = include_str!("../manifest.schema.json");

/// The interfaces and worlds of both files, without the line that names the package.
pub fn items() -> String {
    let line = format!("package {PACKAGE};");
    [TYPES, POLICY].map(|file| file.replacen(&line, "", 1)).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_of_the_manifest_is_that_of_the_type() {
        let schema = schemars::schema_for!(crate::Manifest);
        let schema = serde_json::to_string_pretty(&schema).expect("a schema is JSON");
        assert!(
            MANIFEST_SCHEMA.trim_end() == schema,
            "wit/manifest.schema.json is to be:\n{schema}"
        );
    }

    #[test]
    fn each_file_begins_with_the_name_of_the_package_and_the_items_are_without_it() {
        for file in [TYPES, POLICY] {
            assert!(file.starts_with(&format!("package {PACKAGE};\n")));
        }
        assert!(!items().contains("package polity"));
        assert!(items().contains("world lifecycle-policy {"));
    }
}
