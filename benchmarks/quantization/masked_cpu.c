// Lets a process run as on an x86 CPU that ends at AVX2: CPUID answers without AVX-512, VNNI and AMX.
//
// Libraries choose their kernels by the instruction CPUID. Where the kernel can make it fault (flag cpuid_fault),
// arch_prctl(ARCH_SET_CPUID, 0) turns it into SIGSEGV for this thread and those that it starts; the handler runs it,
// clears the bits and steps over it. What is measured then are the AVX2 kernels themselves, at this CPU's speed.
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define BIT(n) (1u << (n))

// Leaf 7, subleaf 0: AVX512F, DQ, IFMA, PF, ER, CD, BW, VL | VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ | 4VNNIW, 4FMAPS,
// VP2INTERSECT, AMX-BF16, AVX512-FP16, AMX-TILE, AMX-INT8.
static const uint32_t LEAF7_EBX =
    BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31);
static const uint32_t LEAF7_ECX = BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14);
static const uint32_t LEAF7_EDX = BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25);
// Subleaf 1: AVX-VNNI, AVX512-BF16, AMX-FP16, AVX-IFMA | AVX-VNNI-INT8, AVX-NE-CONVERT, AMX-COMPLEX, AVX-VNNI-INT16,
// AVX10.
static const uint32_t LEAF7_1_EAX = BIT(4) | BIT(5) | BIT(21) | BIT(23);
static const uint32_t LEAF7_1_EDX = BIT(4) | BIT(5) | BIT(8) | BIT(10) | BIT(19);

static long allow_cpuid(unsigned long allowed) { return syscall(SYS_arch_prctl, ARCH_SET_CPUID, allowed); }

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *instruction = (const uint8_t *)registers[REG_RIP];
    if (instruction[0] != 0x0F || instruction[1] != 0xA2) {  // a real fault: it comes again and kills the process
        signal(number, SIG_DFL);
        return;
    }
    uint32_t leaf = (uint32_t)registers[REG_RAX], subleaf = (uint32_t)registers[REG_RCX];
    uint32_t eax = leaf, ebx, ecx = subleaf, edx;
    allow_cpuid(1);
    __asm__ volatile("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
    allow_cpuid(0);
    if (leaf == 7 && subleaf == 0) {
        ebx &= ~LEAF7_EBX;
        ecx &= ~LEAF7_ECX;
        edx &= ~LEAF7_EDX;
    }
    if (leaf == 7 && subleaf == 1) {
        eax &= ~LEAF7_1_EAX;
        edx &= ~LEAF7_1_EDX;
    }
    registers[REG_RAX] = eax;
    registers[REG_RBX] = ebx;
    registers[REG_RCX] = ecx;
    registers[REG_RDX] = edx;
    registers[REG_RIP] += 2;
}

// Returns 0, or -1 where this CPU or kernel cannot make CPUID fault.
int mask_cpu(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    if (sigaction(SIGSEGV, &action, NULL) != 0) return -1;
    return allow_cpuid(0) == 0 ? 0 : -1;
}
