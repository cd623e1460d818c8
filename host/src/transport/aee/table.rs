//! The codes: number, name, words, remedy. Numbers and names are those of the platform's headers, the rest is ours; causes
//! are those that users met.

use Remedy::*;

/// One code.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) code: u16,
    pub(super) name: &'static str,
    pub(super) words: &'static str,
    pub(super) remedy: Remedy,
}

/// What to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Remedy {
    Access,
    Close,
    Cores,
    Crash,
    Driver,
    Firmware,
    Library,
    Memory,
    Reopen,
    Report,
    Restart,
    Retry,
    Sessions,
    Sign,
    Stalled,
    Window,
}

impl Remedy {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Access => {
                "Run `hexloom doctor`, which checks the device nodes: on Linux join the group that owns them, on Android \
                 declare libcdsprpc.so in the manifest as a native library that the app uses."
            }
            Close => "Close or free what uses it first; if nothing does, reopen the session.",
            Cores => "Run `hexloom devices`, which lists the cores there are, and name one of those.",
            Crash => "Reopen the session; if it happens again, report the batch and the DSP's log.",
            Driver => "Update the device's software; `hexloom doctor` lists what its driver lacks.",
            Firmware => "Update the device's software, so that the DSP's firmware and its driver are of one version.",
            Library => {
                "Put libhexloom-vNN.so of the DSP's architecture into a readable folder that DSP_LIBRARY_PATH names; \
                 `hexloom doctor` shows which file is tried."
            }
            Memory => "Close other programs, or use a smaller model or context.",
            Reopen => "Reopen the session; if it happens again, restart the device.",
            Report => "Report it with the output of `hexloom doctor --json`.",
            Restart => "Restart the device; if it happens again, update its software.",
            Retry => "Try again in a moment.",
            Sessions => "Close a session, of this program or of another one: a core has a few only.",
            Sign => {
                "Sign the library for this device with `cargo xtask sign`, or open an unsigned process, which is the \
                 default where the driver allows it; HEXLOOM_PROCESS names the kind."
            }
            Stalled => "Reopen the session; a longer deadline helps where the work is only slow.",
            Window => {
                "Free buffers or use a smaller context; `hexloom plan MODEL` shows what fits, and reopening the session \
                 brings a window without holes."
            }
        }
    }
}

const fn row(code: u16, name: &'static str, remedy: Remedy, words: &'static str) -> Row {
    Row {
        code,
        name,
        words,
        remedy,
    }
}

/// The other meaning of 0x68, in calls that allocate.
pub(super) const NO_RPC_MEMORY: Row = row(0x68, "ENORPCMEMORY", Memory, "no memory is left to share with the DSP");

/// The row of an error number of the kernel.
pub(super) fn errno(number: i32) -> Option<&'static Row> {
    ERRNOS.iter().find(|row| i32::from(row.code) == number)
}

/// By number.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row(0x001, "EFAILED", Window, "refused without a reason; for a map, mostly a full or fragmented window"),
    row(0x002, "ENOMEMORY", Memory, "out of memory"),
    row(0x003, "ECLASSNOTSUPPORT", Driver, "the driver does not have this class of object"),
    row(0x004, "EVERSIONNOTSUPPORT", Firmware, "the version asked for is not supported"),
    row(0x005, "EALREADYLOADED", Reopen, "the library is loaded already"),
    row(0x006, "EUNABLETOLOAD", Library, "the DSP could not load the library: missing, for another architecture, or not signed"),
    row(0x007, "EUNABLETOUNLOAD", Reopen, "the DSP could not unload the library"),
    row(0x008, "EALARMPENDING", Retry, "an alarm is pending"),
    row(0x009, "EINVALIDTIME", Report, "a time that makes no sense"),
    row(0x00a, "EBADCLASS", Report, "an object without a class"),
    row(0x00b, "EBADMETRIC", Report, "a measure that does not exist"),
    row(0x00c, "EEXPIRED", Stalled, "no answer in time"),
    row(0x00d, "EBADSTATE", Reopen, "not allowed now; the DSP process may be gone"),
    row(0x00e, "EBADPARM", Report, "bad argument, or still in use"),
    row(0x00f, "ESCHEMENOTSUPPORTED", Report, "the library's address begins with a scheme that is not supported"),
    row(0x010, "EBADITEM", Report, "a value out of range"),
    row(0x011, "EINVALIDFORMAT", Report, "a format that is not valid"),
    row(0x012, "EINCOMPLETEITEM", Report, "an item that is not complete, for instance a string that is too short"),
    row(0x013, "ENOPERSISTMEMORY", Memory, "too little flash memory"),
    row(0x014, "EUNSUPPORTED", Driver, "not supported by this platform or architecture"),
    row(0x015, "EPRIVLEVEL", Access, "the process has too few privileges"),
    row(0x016, "ERESOURCENOTFOUND", Firmware, "the DSP did not find a resource; often its shell or a library is missing or of another build"),
    row(0x017, "EREENTERED", Report, "a call that may not be made inside itself was"),
    row(0x018, "EBADTASK", Report, "a call from the wrong thread"),
    row(0x019, "EALLOCATED", Reopen, "memory was left behind by a module"),
    row(0x01a, "EALREADY", Close, "it was done before"),
    row(0x01b, "EADSAUTHBAD", Sign, "mutual authentication failed"),
    row(0x01c, "ENEEDSERVICEPROG", Firmware, "the device needs service programming"),
    row(0x01d, "EMEMPTR", Report, "a pointer that had to be null was not"),
    row(0x01e, "EHEAP", Reopen, "the heap is damaged"),
    row(0x01f, "EIDLE", Retry, "the system or interface is idle"),
    row(0x020, "EITEMBUSY", Close, "in use already"),
    row(0x021, "EBADSID", Report, "a subscriber that is not valid"),
    row(0x022, "ENOTYPE", Report, "no type was found"),
    row(0x023, "ENEEDMORE", Report, "more data is needed"),
    row(0x024, "EADSCAPS", Driver, "capabilities that do not fit"),
    row(0x025, "EBADSHUTDOWN", Reopen, "a process did not close in order"),
    row(0x026, "EBUFFERTOOSMALL", Report, "the buffer for the answer is too small"),
    row(0x027, "ENOSUCH", Cores, "no such thing"),
    row(0x028, "EACKPENDING", Retry, "an acknowledgement is pending"),
    row(0x029, "ENOTOWNER", Access, "not the owner"),
    row(0x02a, "EINVALIDITEM", Report, "an item that is not valid"),
    row(0x02b, "ENOTALLOWED", Access, "not allowed"),
    row(0x02c, "EINVHANDLE", Reopen, "the handle is not valid; its session may be gone"),
    row(0x02d, "EOUTOFHANDLES", Sessions, "no handle is left"),
    row(0x02e, "EINTERRUPTED", Reopen, "interrupted; the DSP process has most likely ended"),
    row(0x02f, "ENOMORE", Sessions, "no more items"),
    row(0x030, "ECPUEXCEPTION", Crash, "an exception in the DSP process"),
    row(0x031, "EREADONLY", Report, "what is read-only cannot be changed"),
    row(0x032, "EINVALIDMSG", Firmware, "a message that the DSP does not understand"),
    row(0x033, "EINVALIDTHREAD", Report, "a thread that is not valid"),
    row(0x034, "EINVALIDPROCESS", Reopen, "a process that is not valid"),
    row(0x035, "EINVALIDFILENAME", Library, "a file name that is not valid"),
    row(0x036, "EINVALIDDIGESTSIZE", Sign, "a digest of the wrong size in a signature"),
    row(0x037, "EINVALIDSEGS", Sign, "segments that do not fit the signature"),
    row(0x038, "EINVALIDSIGNATURE", Sign, "the signature is not valid"),
    row(0x039, "EINVALIDDOMAIN", Cores, "there is no such DSP"),
    row(0x03a, "EINVALIDFD", Report, "no memory is known under this descriptor"),
    row(0x03b, "EINVALIDDEVICE", Access, "the device node of the DSP could not be opened"),
    row(0x03c, "EINVALIDMODE", Report, "a mode that is not valid"),
    row(0x03d, "EINVALIDPROCNAME", Report, "a process name that is not valid"),
    row(0x03e, "ENOSUCHMOD", Library, "no such module on the DSP"),
    row(0x03f, "ENOSUCHINSTANCE", Reopen, "no such instance"),
    row(0x040, "ENOSUCHTHREAD", Reopen, "no such thread"),
    row(0x041, "ENOSUCHPROCESS", Reopen, "no such process on the DSP"),
    row(0x042, "ENOSUCHSYMBOL", Library, "a symbol is missing in the library, or one that it needs is missing on the DSP"),
    row(0x043, "ENOSUCHDEVICE", Access, "no such device; its node is missing or may not be opened"),
    row(0x044, "ENOSUCHPROP", Firmware, "no such property"),
    row(0x045, "ENOSUCHFILE", Library, "no such file"),
    row(0x046, "ENOSUCHHANDLE", Reopen, "no such handle; its session may be gone"),
    row(0x047, "ENOSUCHSTREAM", Report, "no such stream"),
    row(0x048, "ENOSUCHMAP", Report, "this memory is not mapped"),
    row(0x049, "ENOSUCHREGISTER", Report, "no such register"),
    row(0x04a, "ENOSUCHCLIENT", Reopen, "no such client on the DSP"),
    row(0x04b, "EBADDOMAIN", Reopen, "the DSP is not initialised"),
    row(0x04c, "EBADOFFSET", Report, "a bad offset in a buffer, page or heap"),
    row(0x04d, "EBADSIZE", Report, "a bad size of a buffer, page or heap"),
    row(0x04e, "EBADPERMS", Access, "bad permissions of a file or a mapping"),
    row(0x04f, "EBADFD", Report, "a bad descriptor"),
    row(0x050, "EBADPID", Reopen, "a bad process number"),
    row(0x051, "EBADTID", Reopen, "a bad thread number"),
    row(0x052, "EBADELF", Library, "the library is no ELF file that the DSP takes"),
    row(0x053, "EBADASID", Reopen, "a bad address space"),
    row(0x054, "EBADCONTEXT", Reopen, "a bad context"),
    row(0x055, "EBADMEMALIGN", Report, "memory that is not aligned"),
    row(0x056, "EIOCTL", Access, "a request to the kernel's driver failed"),
    row(0x057, "EFOPEN", Access, "a file or the DSP's device node could not be opened"),
    row(0x058, "EFGETS", Library, "reading a line of a file failed"),
    row(0x059, "EFFLUSH", Library, "flushing a file failed"),
    row(0x05a, "EFCLOSE", Library, "closing a file failed"),
    row(0x05b, "EEOF", Library, "a file ended too early"),
    row(0x05c, "EFREAD", Library, "reading a file failed"),
    row(0x05d, "EFWRITE", Library, "writing a file failed"),
    row(0x05e, "EFGETPOS", Library, "asking for the position in a file failed"),
    row(0x05f, "EFSETPOS", Library, "setting the position in a file failed"),
    row(0x060, "EFTELL", Library, "telling the position in a file failed"),
    row(0x061, "EFSEEK", Library, "seeking in a file failed"),
    row(0x062, "EFLEN", Library, "a file is longer than expected"),
    row(0x063, "EGETENV", Library, "reading an environment variable failed"),
    row(0x064, "ESETENV", Library, "setting an environment variable failed"),
    row(0x065, "EMMAP", Memory, "mapping memory failed"),
    row(0x066, "EIONMAP", Memory, "mapping shared memory failed"),
    row(0x067, "EIONALLOC", Memory, "allocating shared memory failed"),
    row(0x068, "ECONNRESET", Reopen, "the connection was reset; the DSP process or the whole DSP has restarted"),
    row(0x069, "ENOROOTOFTRUST", Sign, "there is no root of trust to check signatures with"),
    row(0x06a, "ENOTLOCKED", Report, "unlocked without having been locked"),
    row(0x06b, "ENOTINITIALIZED", Access, "not initialised; the driver library found no DSP it may use"),
    row(0x06c, "EUNSUPPORTEDAPI", Driver, "the driver does not know this request"),
    row(0x06d, "EUNPACK", Firmware, "unpacking a message failed"),
    row(0x06e, "EPOLL", Reopen, "polling for an event failed"),
    row(0x06f, "EEVENTREAD", Reopen, "reading an event failed"),
    row(0x070, "EMAXBUFS", Report, "too many buffers"),
    row(0x071, "EINVARGS", Report, "invalid arguments"),
    row(0x072, "ECONNREFUSED", Access, "the DSP refused the connection; no permission, or its service does not run"),
    row(0x081, "EUNSIGNEDMOD", Sign, "the library is not signed and the process takes signed ones only"),
    row(0x082, "EINVALIDHASH", Sign, "the library is not what was signed"),
    row(0x083, "EBADVA", Report, "a bad address"),
    row(0x084, "ENOSUCHGROUP", Firmware, "no such group of processes, or no such outstanding call"),
    row(0x085, "EBADMAPREFCNT", Report, "a mapping is counted wrongly"),
    row(0x086, "EBADPAGECNT", Report, "a bad number of pages"),
    row(0x087, "EMAPALREADYPRESENT", Close, "the mapping exists already"),
    row(0x088, "ENOFREESECTION", Window, "no free section is left for a mapping"),
    row(0x089, "EU2GCLIENT_OPEN", Reopen, "the DSP's own client could not be opened"),
    row(0x08a, "ENOSESSION", Sessions, "no session is left"),
    row(0x101, "EGLINKBADPACKET", Restart, "a packet of the wrong size between host and DSP"),
    row(0x102, "EGLINKALREADYOPEN", Restart, "the channel to the DSP is open already"),
    row(0x103, "EGLINKOPENFAILED", Restart, "the channel to the DSP could not be opened"),
    row(0x104, "EGLINKWRITE", Restart, "writing to the channel to the DSP failed"),
    row(0x105, "EGLINKREGISTER", Restart, "registering with the channel to the DSP failed"),
    row(0x120, "EDAL", Restart, "the DSP's device layer failed"),
    row(0x121, "EDALDEVATTACH", Restart, "the DSP could not attach to a device"),
    row(0x122, "EDALINTREGISTER", Restart, "the DSP could not register an interrupt"),
    row(0x123, "EDALINTUNREGISTER", Restart, "the DSP could not give an interrupt back"),
    row(0x124, "EDALGETPROP", Restart, "the DSP could not read a property"),
    row(0x125, "EDALGETVAL", Restart, "the DSP could not read a value"),
    row(0x126, "EDCVSREQUEST", Restart, "a request for clocks failed"),
    row(0x140, "EQURT", Crash, "the DSP's system failed"),
    row(0x141, "EQURTREGIONCREATE", Window, "the DSP's system could not create a region"),
    row(0x142, "EQURTCACHECLEAN", Crash, "a cache operation failed"),
    row(0x143, "EQURTREGIONGETATTR", Crash, "the attributes of a region could not be read"),
    row(0x144, "EQURTBADREGIONPERMS", Crash, "bad permissions of a region"),
    row(0x145, "EQURTMEMPOOLADD", Memory, "adding to a memory pool failed"),
    row(0x146, "EQURTREGISTERDEV", Restart, "a device could not be registered"),
    row(0x147, "EQURTMEMPOOLCREATE", Memory, "creating a memory pool failed"),
    row(0x148, "EQURTGETVA", Crash, "an address could not be found"),
    row(0x149, "EQURTREGIONDELETE", Crash, "a region could not be deleted"),
    row(0x14a, "EQURTMEMPOOLATTACH", Memory, "attaching to a memory pool failed"),
    row(0x14b, "EQURTTHREADCREATE", Sessions, "a thread could not be created on the DSP"),
    row(0x14c, "EQURTCOPYTOUSER", Crash, "copying to the DSP process failed"),
    row(0x14d, "EQURTMEMMAPCREATE", Window, "a mapping could not be created on the DSP"),
    row(0x14e, "EQURTINVHANDLE", Reopen, "a client handle that is not valid"),
    row(0x14f, "EQURTBADASID", Reopen, "a bad address space of the DSP's system"),
    row(0x150, "EQURTOPENFAILED", Restart, "a driver of the DSP could not be opened"),
    row(0x151, "EQURTCOPYFROMUSER", Crash, "copying from the DSP process failed"),
    row(0x152, "EQURTLINELOCK", Crash, "locking cache lines failed"),
    row(0x153, "EQURTQDIDEFMETHOD", Crash, "a driver of the DSP does not know a method"),
    row(0x154, "EQURTCREATEHANDLE", Reopen, "a handle could not be created"),
    row(0x155, "EQURTWRITABLEMEM", Crash, "memory that had to be read-only is writable"),
    row(0x156, "EQURTTHREADCREATEDEF", Sessions, "a thread could not be created with the system's settings"),
    row(0x157, "EQURTLOOKUPVA", Crash, "a virtual address was not found"),
    row(0x158, "EQURTLOOKUPPA", Crash, "a physical address was not found"),
    row(0x159, "EQURTMIGRATESECURE", Sign, "a process could not be moved to the secure side"),
    row(0x160, "EQURTQDIOPEN", Restart, "a driver of the DSP's system could not be opened"),
    row(0x161, "EQURTMAPREMOVE", Crash, "a mapping could not be removed on the DSP"),
    row(0x162, "EQURTQDICLOSE", Restart, "a driver of the DSP's system could not be closed"),
    row(0x163, "EQURTWAIT", Crash, "waiting on a word failed"),
    row(0x170, "EMMPM", Restart, "the DSP's power service failed"),
    row(0x171, "EMMPMREQUEST", Restart, "a power request was refused"),
    row(0x172, "EMMPMRELEASE", Restart, "a power request could not be given back"),
    row(0x173, "EMMPMSETPARAM", Restart, "a power setting was refused"),
    row(0x174, "EMMPMREGISTER", Restart, "registering with the power service failed"),
    row(0x175, "EMMPMGETINFO", Restart, "the power service gives no answer"),
    row(0x176, "EMAX_MMPM_CLIENTS", Sessions, "too many clients of the power service in the process"),
    row(0x177, "EDCVSREGISTER", Restart, "registering for clock scaling failed"),
    row(0x178, "EPDRREGFAIL", Restart, "registering for error notices failed"),
    row(0x180, "EDEFAULT_PROCESS", Firmware, "the DSP's default process is not there"),
    row(0x181, "ENULLCONTEXT", Report, "a power vote without a client"),
    row(0x182, "EINVALIDJOB", Report, "no such outstanding call"),
    row(0x183, "EBUSY", Retry, "a call is still under way"),
    row(0x190, "E_APPS_BUSY_RETRY_LATER", Retry, "the host is busy"),
    row(0x191, "E_HLOS_CAP_REACHED", Memory, "the host gives the DSP no more memory"),
    row(0x192, "E_DPOOL_CAP_REACHED", Memory, "the DSP's pool gives no more memory"),
    row(0x193, "E_NO_MORE_FREE_SECTIONS", Memory, "the DSP's heap cannot grow any more"),
    row(0x194, "ESTUBSKELVERMISMATCH", Library, "host and library are of different versions"),
    row(0x200, "ERPC", Restart, "FastRPC itself failed"),
    row(0x201, "EFILE", Library, "a file could not be handled"),
    row(0x204, "EWOULDBLOCK", Retry, "nothing is there yet"),
];

/// The kernel's error numbers that drivers give.
#[rustfmt::skip]
pub(super) const ERRNOS: &[Row] = &[
    row(1, "EPERM", Access, "the operation is not permitted"),
    row(2, "ENOENT", Library, "no such file or device"),
    row(4, "EINTR", Retry, "interrupted by a signal"),
    row(5, "EIO", Restart, "the driver could not reach the DSP"),
    row(9, "EBADF", Report, "a bad descriptor"),
    row(11, "EAGAIN", Retry, "nothing is there yet"),
    row(12, "ENOMEM", Memory, "out of memory"),
    row(13, "EACCES", Access, "permission denied"),
    row(14, "EFAULT", Report, "a bad address"),
    row(16, "EBUSY", Close, "in use already"),
    row(19, "ENODEV", Access, "no such device"),
    row(22, "EINVAL", Report, "an invalid argument"),
    row(25, "ENOTTY", Driver, "the driver does not know this request"),
    row(28, "ENOSPC", Window, "no space is left"),
    row(104, "ECONNRESET", Reopen, "the connection was reset; the DSP process or the whole DSP has restarted"),
    row(108, "ESHUTDOWN", Reopen, "the DSP is shut down"),
    row(110, "ETIMEDOUT", Stalled, "no answer in time"),
    row(111, "ECONNREFUSED", Access, "the DSP refused the connection"),
];
