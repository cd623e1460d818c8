//! Sessions that wait for each other, on the simulator.

use std::sync::Arc;

use hexloom::Transport;
use hexloom_sim::{SimOptions, SimTransport};

#[test]
fn on_the_simulator() {
    let transport: Arc<dyn Transport> = Arc::new(SimTransport::new(SimOptions::default()));
    hexloom_conformance::peers::run(&transport);
}
