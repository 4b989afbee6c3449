-- Wireshark's dissector of RoCEv2 knows IBA's headers. This one names what irnic adds to them: IRN's fields, NDP's word and
-- feedback, TLT's marks, and trimmed packets (docs/wire.md). Packets without any of it are left to Wireshark. RoCC's notices,
-- which are ICMP messages of type 253, are named, too.
--
--   wireshark -X lua_script:irnic.lua capture.pcapng
--   tshark -X lua_script:irnic.lua -r capture.pcapng -Y 'irnic.run > 0'
--
-- For good: copy it into the folder that "tshark -G folders" names as Personal Lua Plugins.

local PORT = 4791
local irnic = Proto("irnic", "IRN, NDP and TLT over RoCEv2 (irnic)")

-- How the payload of a reliable packet begins: the opcode's lower five bits, its name, and the headers after the BTH in plain
-- RoCE. With the extension "reth" and "aeth" come before those, where plain RoCE leaves them out; "sn" is recv_WQE_SN and PSN
-- offset, "read" read_WQE_SN, "ack" run and selective PSN.
local OPCODES = {
    [0x00] = { "SEND First", {}, { "sn" } },
    [0x01] = { "SEND Middle", {}, { "sn" } },
    [0x02] = { "SEND Last", {}, { "sn" } },
    [0x03] = { "SEND Last Immediate", { "immdt" }, { "sn" } },
    [0x04] = { "SEND Only", {}, { "sn" } },
    [0x05] = { "SEND Only Immediate", { "immdt" }, { "sn" } },
    [0x06] = { "RDMA WRITE First", { "reth" }, {} },
    [0x07] = { "RDMA WRITE Middle", {}, { "reth" } },
    [0x08] = { "RDMA WRITE Last", {}, { "reth" } },
    [0x09] = { "RDMA WRITE Last Immediate", { "immdt" }, { "reth", "sn" } },
    [0x0a] = { "RDMA WRITE Only", { "reth" }, {} },
    [0x0b] = { "RDMA WRITE Only Immediate", { "reth", "immdt" }, { "sn" } },
    [0x0c] = { "RDMA READ Request", { "reth" }, { "read" } },
    [0x0d] = { "RDMA READ Response First", { "aeth" }, {} },
    [0x0e] = { "RDMA READ Response Middle", {}, { "aeth" } },
    [0x0f] = { "RDMA READ Response Last", { "aeth" }, {} },
    [0x10] = { "RDMA READ Response Only", { "aeth" }, {} },
    [0x11] = { "Acknowledge", { "aeth" }, { "ack" } },
    [0x12] = { "ATOMIC Acknowledge", { "aeth", "atomicack" }, {} },
    [0x13] = { "Compare & Swap", { "atomic" }, { "read" } },
    [0x14] = { "Fetch & Add", { "atomic" }, { "read" } },
    [0x16] = { "SEND Last Invalidate", { "ieth" }, { "sn" } },
    [0x17] = { "SEND Only Invalidate", { "ieth" }, { "sn" } },
    [0x18] = { "READ Acknowledge", {}, { "aeth", "ack" } },
    [0x19] = { "NDP Feedback", {}, { "aeth", "feedback" } },
    [0x1a] = { "NDP READ Feedback", {}, { "aeth", "feedback" } },
    [0x1b] = { "TLT Clock", {}, {} },
    [0x1c] = { "FLUSH", { "feth", "reth" }, { "read" } },
    [0x1d] = { "ATOMIC WRITE", { "reth" }, { "read" } },
    [0x1e] = { "TLT READ Clock", {}, {} },
}
-- Requests of XRC name a shared receive queue; responses do not.
local RESPONSES = { [0x0d] = true, [0x0e] = true, [0x0f] = true, [0x10] = true, [0x11] = true, [0x12] = true, [0x18] = true }

local COLOURS = { [0] = "green", [1] = "red", [3] = "trimmed", [5] = "trimmed, returned to its sender" }
local IMPORTANCE = { [0] = "none", [1] = "important", [2] = "clock", [3] = "reserved" }

local f = {
    opcode = ProtoField.string("irnic.opcode", "Opcode"),
    capable = ProtoField.bool("irnic.capable", "Capable of IRN (C)", 8, nil, 0x20),
    irn = ProtoField.bool("irnic.irn", "IRN extension (X)", 8, nil, 0x40),
    ndp = ProtoField.bool("irnic.ndp", "NDP's word (N)", 8, nil, 0x10),
    importance = ProtoField.uint8("irnic.tlt", "TLT (T)", base.DEC, IMPORTANCE, 0x0c),
    low = ProtoField.bool("irnic.rc3", "RC3's low priority (L)", 8, nil, 0x02),
    qp = ProtoField.uint24("irnic.qp", "Destination queue pair", base.HEX),
    psn = ProtoField.uint24("irnic.psn", "PSN"),
    srqn = ProtoField.uint24("irnic.srqn", "XRC shared receive queue", base.HEX),
    syndrome = ProtoField.uint8("irnic.syndrome", "AETH syndrome", base.HEX),
    msn = ProtoField.uint24("irnic.msn", "MSN"),
    va = ProtoField.uint64("irnic.va", "Virtual address", base.HEX),
    rkey = ProtoField.uint32("irnic.rkey", "R_Key", base.HEX),
    length = ProtoField.uint32("irnic.length", "Bytes to the end of the message"),
    swap_add = ProtoField.uint64("irnic.swap_add", "Swap or add", base.HEX),
    compare = ProtoField.uint64("irnic.compare", "Compare", base.HEX),
    original = ProtoField.uint64("irnic.original", "Original value", base.HEX),
    immdt = ProtoField.uint32("irnic.immdt", "Immediate data", base.HEX),
    ieth = ProtoField.uint32("irnic.invalidate", "R_Key to be invalidated", base.HEX),
    selectivity = ProtoField.uint32("irnic.flush.selectivity", "Selectivity", base.DEC, nil, 0x30),
    placement = ProtoField.uint32("irnic.flush.placement", "Placement", base.HEX, nil, 0x0f),
    recv_wqe_sn = ProtoField.uint24("irnic.recv_wqe_sn", "recv_WQE_SN"),
    psn_offset = ProtoField.uint24("irnic.psn_offset", "PSN offset"),
    read_wqe_sn = ProtoField.uint24("irnic.read_wqe_sn", "read_WQE_SN"),
    run = ProtoField.uint8("irnic.run", "Packets before the selective PSN that have arrived; 1 on an ACK: a duplicate"),
    selective = ProtoField.uint24("irnic.selective", "Selective PSN"),
    arrived = ProtoField.bool("irnic.feedback.arrived", "The subject has arrived", 8, nil, 0x01),
    trimmed = ProtoField.bool("irnic.feedback.trimmed", "Only its headers have", 8, nil, 0x02),
    pull = ProtoField.bool("irnic.feedback.pull", "A pull", 8, nil, 0x04),
    again = ProtoField.bool("irnic.feedback.again", "It had arrived before", 8, nil, 0x08),
    owes_none = ProtoField.bool("irnic.feedback.owes_none", "No other pull is owed", 8, nil, 0x10),
    subject = ProtoField.uint24("irnic.subject", "Subject"),
    path = ProtoField.uint8("irnic.path", "Path"),
    pulls = ProtoField.uint24("irnic.pulls", "Pulls so far"),
    last = ProtoField.bool("irnic.last", "Nothing behind this packet", 8, nil, 0x80),
    source_qp = ProtoField.uint24("irnic.source_qp", "Source queue pair", base.HEX),
    payload = ProtoField.uint32("irnic.payload", "Payload [bytes]"),
    colour = ProtoField.uint8("irnic.colour", "Colour (lower bits of the DSCP)", base.DEC, COLOURS),
}
-- A table of names is no list.
local fields = {}
for _, field in pairs(f) do fields[#fields + 1] = field end
irnic.fields = fields
local cut = ProtoExpert.new("irnic.cut", "Headers are cut short", expert.group.MALFORMED, expert.severity.ERROR)
irnic.experts = { cut }

local ip_dsfield = { Field.new("ip.dsfield.dscp"), Field.new("ipv6.tclass.dscp") }

-- Headers: bytes, and what is in them.
local HEADERS = {
    srqn = { 4, function(at, tree) tree:add(f.srqn, at(1, 3)) end },
    reth = { 16, function(at, tree)
        tree:add(f.va, at(0, 8))
        tree:add(f.rkey, at(8, 4))
        tree:add(f.length, at(12, 4))
    end },
    atomic = { 28, function(at, tree)
        tree:add(f.va, at(0, 8))
        tree:add(f.rkey, at(8, 4))
        tree:add(f.swap_add, at(12, 8))
        tree:add(f.compare, at(20, 8))
    end },
    aeth = { 4, function(at, tree)
        tree:add(f.syndrome, at(0, 1))
        tree:add(f.msn, at(1, 3))
    end },
    atomicack = { 8, function(at, tree) tree:add(f.original, at(0, 8)) end },
    immdt = { 4, function(at, tree) tree:add(f.immdt, at(0, 4)) end },
    ieth = { 4, function(at, tree) tree:add(f.ieth, at(0, 4)) end },
    feth = { 4, function(at, tree)
        tree:add(f.selectivity, at(0, 4))
        tree:add(f.placement, at(0, 4))
    end },
    sn = { 8, function(at, tree)
        tree:add(f.recv_wqe_sn, at(1, 3))
        tree:add(f.psn_offset, at(5, 3))
    end, function(at) return string.format(" recv_WQE_SN=%d PSN offset=%d", at(1, 3):uint(), at(5, 3):uint()) end },
    read = { 4, function(at, tree) tree:add(f.read_wqe_sn, at(1, 3)) end,
        function(at) return string.format(" read_WQE_SN=%d", at(1, 3):uint()) end },
    ack = { 4, function(at, tree)
        tree:add(f.run, at(0, 1))
        tree:add(f.selective, at(1, 3))
    end, function(at) return string.format(" selective=%d run=%d", at(1, 3):uint(), at(0, 1):uint()) end },
    feedback = { 8, function(at, tree)
        for _, bit in ipairs({ f.arrived, f.trimmed, f.pull, f.again, f.owes_none }) do tree:add(bit, at(0, 1)) end
        tree:add(f.subject, at(1, 3))
        tree:add(f.path, at(4, 1))
        tree:add(f.pulls, at(5, 3))
    end, function(at) return string.format(" subject=%d pulls=%d", at(1, 3):uint(), at(5, 3):uint()) end },
    word = { 4, function(at, tree)
        tree:add(f.last, at(0, 1))
        tree:add(f.source_qp, at(1, 3))
    end },
}

local function set(byte, bit) return byte:bitfield(bit, 1) == 1 end

-- Returns the headers between BTH and payload, in their order.
local function headers_of(opcode, x, n)
    local low, xrc = opcode % 32, opcode >= 0xa0
    local _, plain, extension = table.unpack(OPCODES[low])
    local list = {}
    if xrc and not RESPONSES[low] then list[1] = "srqn" end
    if x then
        -- RETH and AETH stand where IBA has them, the rest behind.
        for _, name in ipairs(extension) do
            if name == "reth" or name == "aeth" then list[#list + 1] = name end
        end
    end
    for _, name in ipairs(plain) do list[#list + 1] = name end
    if x then
        for _, name in ipairs(extension) do
            if name ~= "reth" and name ~= "aeth" then list[#list + 1] = name end
        end
        if n and low ~= 0x19 and low ~= 0x1a then list[#list + 1] = "word" end
    end
    return list
end

local function dissect(tvb, pinfo, root)
    local opcode, bits = tvb(0, 1):uint(), tvb(8, 1)
    local known = OPCODES[opcode % 32]
    local reliable = opcode < 0x20 or opcode >= 0xa0 and opcode < 0xc0
    if not (known and reliable) then return end
    local x, c = set(bits, 1), set(bits, 2)
    local colour = 0
    for _, field in ipairs(ip_dsfield) do
        local value = field()
        if value then colour = value.value % 8 end
    end
    if not (x or c) and colour == 0 then return end

    local tree = root:add(irnic, tvb())
    local name = (opcode >= 0xa0 and "XRC " or "RC ") .. known[1]
    tree:add(f.opcode, tvb(0, 1), name)
    tree:add(f.irn, bits)
    tree:add(f.capable, bits)
    if x then
        tree:add(f.ndp, bits)
        tree:add(f.importance, bits)
        tree:add(f.low, bits)
    end
    tree:add(f.qp, tvb(5, 3))
    tree:add(f.psn, tvb(9, 3))
    if colour ~= 0 then tree:add(f.colour, colour):set_generated() end
    if not x then return end

    local info = string.format("%s QP=0x%06x PSN=%d", name, tvb(5, 3):uint(), tvb(9, 3):uint())
    local from = 12
    for _, header in ipairs(headers_of(opcode, x, set(bits, 3))) do
        local len, show, say = table.unpack(HEADERS[header])
        if from + len > tvb:len() then
            tree:add_proto_expert_info(cut)
            break
        end
        local at = function(offset, count) return tvb(from + offset, count) end
        show(at, tree)
        if say then info = info .. say(at) end
        from = from + len
    end
    -- What is trimmed has no payload, whatever its pad count says; the ICRC has four bytes.
    local trimmed = colour == 3 or colour == 5
    local pad = trimmed and 0 or tvb(1, 1):bitfield(2, 2)
    tree:add(f.payload, math.max(tvb:len() - from - 4 - pad, 0)):set_generated()
    local marks = { [1] = " important", [2] = " clock" }
    info = info .. (marks[bits:bitfield(4, 2)] or "") .. (trimmed and " " .. COLOURS[colour] or "")
    pinfo.cols.protocol:set("IRN")
    pinfo.cols.info:set(info)
end

local ports = DissectorTable.get("udp.port")
local roce = ports:get_dissector(PORT)

function irnic.dissector(tvb, pinfo, root)
    -- What it finds malformed comes as an error here.
    if roce and not pcall(roce.call, roce, tvb, pinfo, root) then
        root:add(irnic, tvb()):add_proto_expert_info(cut)
    end
    -- BTH and ICRC are in every packet.
    if tvb:len() >= 16 then dissect(tvb, pinfo, root) end
end

ports:add(PORT, irnic)

-- RoCC's notices. Wireshark's ICMP has no table for types that it does not know: this looks at packets after it.
local rocc = Proto("irnic_rocc", "Notice of a fair rate, RoCC (irnic)")
local r = {
    version = ProtoField.uint8("irnic_rocc.version", "Version"),
    port = ProtoField.uint16("irnic_rocc.port", "Port of the switch"),
    rate = ProtoField.uint32("irnic_rocc.rate", "Fair rate [kbit/s]"),
    queue = ProtoField.uint32("irnic_rocc.queue", "Queue [bytes]"),
    fraction = ProtoField.uint8("irnic_rocc.fraction", "Bits of rates behind the point"),
    before = ProtoField.double("irnic_rocc.before", "Fair rate before [Mbit/s]"),
    least = ProtoField.double("irnic_rocc.f_min", "F_min [Mbit/s]"),
    most = ProtoField.double("irnic_rocc.f_max", "F_max [Mbit/s]"),
    queued = ProtoField.uint32("irnic_rocc.queue_before", "Queue before [bytes]"),
    qref = ProtoField.uint32("irnic_rocc.q_ref", "Q_ref [bytes]"),
    qmid = ProtoField.uint32("irnic_rocc.q_mid", "Q_mid [bytes]"),
    qmax = ProtoField.uint32("irnic_rocc.q_max", "Q_max [bytes]"),
    chunk = ProtoField.uint32("irnic_rocc.chunk", "ΔQ [bytes]"),
    alpha = ProtoField.double("irnic_rocc.alpha", "α̃"),
    beta = ProtoField.double("irnic_rocc.beta", "β̃"),
    src = ProtoField.ipv4("irnic_rocc.src", "Sender of the packet"),
    dst = ProtoField.ipv4("irnic_rocc.dst", "Receiver of the packet"),
    qp = ProtoField.uint24("irnic_rocc.qp", "Destination queue pair of the packet", base.HEX),
    psn = ProtoField.uint24("irnic_rocc.psn", "PSN of the packet"),
}
local rocc_fields = {}
for _, field in pairs(r) do rocc_fields[#rocc_fields + 1] = field end
rocc.fields = rocc_fields
rocc.experts = { ProtoExpert.new("irnic_rocc.cut", "The notice is cut short", expert.group.MALFORMED, expert.severity.ERROR) }

local icmp_type, icmp_code = Field.new("icmp.type"), Field.new("icmp.code")
-- Bytes of ICMP's header with rate and queue, of what version 2 has behind it, and of the quoted IPv4, UDP and BTH.
local NOTICE, HISTORY, QUOTE = 16, 36, 40

function rocc.dissector(tvb, pinfo, root)
    local kind, code = icmp_type(), icmp_code()
    if not (kind and code) or kind.value ~= 253 or code.value ~= 0 then return end
    local at, left = kind.offset, tvb:len() - kind.offset
    if left < NOTICE + QUOTE then return end
    local version = tvb(at + 4, 1):uint()
    local long = version == 2
    if version ~= 1 and not long then return end
    local len = NOTICE + (long and HISTORY or 0) + QUOTE
    local tree = root:add(rocc, tvb(at, math.min(len, left)))
    if left < len then
        tree:add_proto_expert_info(rocc.experts[1])
        return
    end
    tree:add(r.version, tvb(at + 4, 1))
    tree:add(r.port, tvb(at + 6, 2))
    tree:add(r.queue, tvb(at + 12, 4))
    local said = string.format("port=%d queue=%d", tvb(at + 6, 2):uint(), tvb(at + 12, 4):uint())
    if long then
        -- Rates are in parts of 10 Mbit/s, all with 16 bits behind the point.
        local function parts(field, offset, unit)
            tree:add(field, tvb(at + offset, 4), tvb(at + offset, 4):uint() / 65536 * unit)
        end
        tree:add(r.fraction, tvb(at + 5, 1))
        for _, number in ipairs({ { r.before, 8 }, { r.least, 16 }, { r.most, 20 } }) do
            parts(number[1], number[2], 10)
        end
        local queues = { { r.queued, 24 }, { r.qref, 28 }, { r.qmid, 32 }, { r.qmax, 36 }, { r.chunk, 40 } }
        for _, number in ipairs(queues) do tree:add(number[1], tvb(at + number[2], 4)) end
        parts(r.alpha, 44, 1)
        parts(r.beta, 48, 1)
        said = said .. string.format(" rate before=%.3f Mbit/s", tvb(at + 8, 4):uint() / 65536 * 10)
    else
        tree:add(r.rate, tvb(at + 8, 4))
        said = said .. string.format(" rate=%.3f Mbit/s", tvb(at + 8, 4):uint() / 1000)
    end
    local quote = at + len - QUOTE
    tree:add(r.src, tvb(quote + 12, 4))
    tree:add(r.dst, tvb(quote + 16, 4))
    tree:add(r.qp, tvb(quote + 33, 3))
    tree:add(r.psn, tvb(quote + 37, 3))
    pinfo.cols.protocol:set("RoCC")
    pinfo.cols.info:set(string.format("Fair rate: %s about QP=0x%06x", said, tvb(quote + 33, 3):uint()))
end

register_postdissector(rocc)
