create_bd_cell -type ip -vlnv xilinx.com:ip:zynq_ultra_ps_e ps8
apply_bd_automation -rule xilinx.com:bd_rule:zynq_ultra_ps_e -config [list \
    apply_board_preset [expr {$board ne ""}] \
] [get_bd_cells ps8]
# The device tree overlay sets the same width of the master, and the same clock.
set_property -dict [list \
    CONFIG.PSU__FPGA_PL0_ENABLE 1 \
    CONFIG.PSU__CRL_APB__PL0_REF_CTRL__SRCSEL IOPLL \
    CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ $clock_mhz \
    CONFIG.PSU__USE__FABRIC__RST 1 \
    CONFIG.PSU__USE__M_AXI_GP0 1 \
    CONFIG.PSU__MAXIGP0__DATA_WIDTH 32 \
    CONFIG.PSU__USE__M_AXI_GP1 0 \
    CONFIG.PSU__USE__M_AXI_GP2 0 \
    CONFIG.PSU__USE__IRQ0 1 \
] [get_bd_cells ps8]
set master ps8/M_AXI_HPM0_FPD
set master_clock ps8/maxihpm0_fpd_aclk
set clock ps8/pl_clk0
set reset ps8/pl_resetn0
set interrupts ps8/pl_ps_irq0
