//! A freed buffer's fd comes back with the next buffer, whose data must be seen. Alone in its process, because other
//! tests would take the number.

mod session_support;

use hexloom::{Buffer, DType, Graph, Session};
use session_support::{bytes, open, options};

#[test]
fn a_recycled_fd_shows_the_new_data() {
    let session = open(options());
    let mut recycled = 0;
    let mut last = None;
    for round in 0..20 {
        let buffer = session.alloc("again", 8192).unwrap();
        recycled += usize::from(last == Some(buffer.fd()));
        last = Some(buffer.fd());
        let value = round as f32;
        buffer.write(0, &bytes(&[value; 16])).unwrap();
        assert_eq!(doubled(&session, &buffer), [2.0 * value; 16]);
    }
    assert!(
        recycled >= 10,
        "the fd came back {recycled} times only: nothing was tested"
    );
}

/// Every temporary of the run is gone when this returns, so that the next allocation takes the lowest free number.
fn doubled(session: &Session, buffer: &Buffer) -> Vec<f32> {
    let mut graph = Graph::new();
    let x = graph.placed("x", DType::F32, [16, 1, 1, 1], buffer, 0).unwrap();
    let y = graph.scale("y", x, 2.0, 0.0).unwrap();
    graph.output(y);
    let prepared = session.run("double", graph).unwrap();
    prepared.floats(y).unwrap().to_vec()
}
