//! The fewest packets that the instructions of a loop need, by the slots and units they take.
//!
//! A packet holds four instructions. A vector unit has two multipliers (a float multiplication, and anything with a pair as
//! result, takes both; a splat from a scalar takes one), one shifter (shifts, qfloat additions and conversions), one unit for
//! permutations, and one port each for vector loads and stores; what is left runs anywhere. Found by asking the assembler which
//! packets it refuses.

use super::disasm::Packet;

/// How often each unit is used.
#[derive(Debug, Default, PartialEq)]
struct Uses {
    instructions: usize,
    multipliers: usize,
    shifter: usize,
    permute: usize,
    loads: usize,
    stores: usize,
}

/// Lower bound of a loop's packets.
pub(crate) fn slot_bound(packets: &[Packet]) -> usize {
    let mut uses = Uses::default();
    for text in packets.iter().flat_map(|packet| &packet.instructions) {
        uses.count(text);
    }
    [
        uses.instructions.div_ceil(4),
        uses.multipliers.div_ceil(2),
        uses.shifter,
        uses.permute,
        uses.loads,
        uses.stores,
    ]
    .into_iter()
    .fold(0, usize::max)
}

impl Uses {
    fn count(&mut self, text: &str) {
        if text == "nop" {
            return;
        }
        self.instructions += 1;
        let Some((target, value)) = text.split_once('=') else {
            return;
        };
        let (target, value) = (target.trim(), value.trim_start_matches(['=', ' ']));
        if target.starts_with("vmem") || target.contains(" vmem") {
            self.stores += 1;
            return;
        }
        let name = value.split('(').next().unwrap_or_default().trim();
        let pair = target.contains(':');
        let is_qfloat = text.contains(".qf");
        match name {
            "vmem" | "vmemu" => self.loads += 1,
            "vmpy" | "vmpye" | "vmpyo" | "vmpyi" | "vmpyie" | "vmpyieo" => self.multipliers += 2,
            "vrmpy" | "vdmpy" if !pair => self.multipliers += 1,
            "vrmpy" | "vdmpy" | "vtmpy" => self.multipliers += 2,
            "vsplat" if target.starts_with('v') => self.multipliers += 1,
            "vadd" | "vsub" if is_qfloat => self.shifter += 1,
            "vadd" | "vsub" if text.contains(".sf") || text.contains(".hf") => self.multipliers += 2,
            "vlsr" | "vasl" | "vasr" | "vcl0" | "vnormamt" => self.shifter += 1,
            "vshuff" | "vdeal" | "vror" | "valign" | "vlalign" | "vpacke" | "vpacko" | "vunpack" | "vdelta"
            | "vrdelta" | "vlut32" | "vlut16" => self.permute += 1,
            // A conversion has no name: `v8.sf = v8.qf32`.
            _ if name == value && is_qfloat => self.shifter += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(all: &[&str]) -> Uses {
        let mut uses = Uses::default();
        for text in all {
            uses.count(text);
        }
        uses
    }

    #[test]
    fn units_are_told_apart() {
        let wanted = Uses {
            instructions: 12,
            multipliers: 1 + 2 + 2 + 1,
            shifter: 3,
            permute: 1,
            loads: 2,
            stores: 1,
        };
        let found = uses(&[
            "v1.w += vrmpy(v2.ub,r2.b)",
            "v9:8.qf32 = vmpy(v9.hf,v6.hf)",
            "v4.qf32 = vmpy(v8.qf32,v4.qf32)",
            "v1 = vsplat(r5)",
            "v5.qf32 = vsub(v5.sf,v1.sf)",
            "v8.sf = v8.qf32",
            "v8.ub = vlsr(v8.ub,r6)",
            "v9.h = vshuff(v9.h)",
            "v10.cur = vmem(r0+#0x1)",
            "if (p0) v5 = vmem(r4+#0x0)",
            "vmem(r22+#0x0) = v0.new",
            "r13:12 = memd(r8+#0x0)",
            "nop",
        ]);
        assert_eq!(found, wanted);
    }
}
