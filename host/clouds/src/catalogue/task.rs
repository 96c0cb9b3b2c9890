//! Tasks: work of a cloud that takes longer than a call.

use serde_json::json;

use super::{Named, fields, id, of, power, read, text};

/// Reads the state of a task.
pub const GET: &str = "task.get";

/// The name of the service, with its major version.
const SERVICE: &str = "task@1";

/// The operations on tasks.
pub fn operations() -> Vec<Named> {
    let error = json!({"fault": text(), "message": text(), "existing": power(), "requested": power()});
    let task = json!({
        "id": text(),
        "state": {"enum": ["queued", "running", "success", "error"]},
        "kind": {"enum": [
            "clone", "reconfigure", "power-on", "power-off", "destroy", "install", "init", "join", "remove", "push",
        ]},
        "vm": text(),
        // What its VM asks a person; the task runs until that is answered.
        "question": text(),
        "error": fields(error, &["fault", "message"]),
    });
    let answer = fields(task, &["id", "state", "kind"]);
    let description = "The state of a task; not-found after its record has expired.";
    of(SERVICE, [read(GET, description, id(), answer)])
}
