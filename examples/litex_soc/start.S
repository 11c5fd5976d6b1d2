/* The CPU begins here. There is nothing to initialise: the program has only constants and its stack. */
    .section .text.start
    .global _start
_start:
    la sp, _stack_end
    call main
1:  j 1b

    .section .rodata
    .global weights, weights_end
    .balign 4
weights:
    .incbin "weights.bin"
weights_end:
