create_bd_cell -type ip -vlnv xilinx.com:ip:processing_system7:5.5 ps7
apply_bd_automation -rule xilinx.com:bd_rule:processing_system7 -config [list \
    make_external "FIXED_IO, DDR" \
    apply_board_preset [expr {$board ne ""}] \
    Master Disable \
    Slave Disable \
] [get_bd_cells ps7]
set_property -dict [list \
    CONFIG.PCW_FPGA0_PERIPHERAL_FREQMHZ $clock_mhz \
    CONFIG.PCW_EN_CLK0_PORT 1 \
    CONFIG.PCW_EN_RST0_PORT 1 \
    CONFIG.PCW_USE_M_AXI_GP0 1 \
    CONFIG.PCW_USE_FABRIC_INTERRUPT 1 \
    CONFIG.PCW_IRQ_F2P_INTR 1 \
] [get_bd_cells ps7]
set master ps7/M_AXI_GP0
set master_clock ps7/M_AXI_GP0_ACLK
set clock ps7/FCLK_CLK0
set reset ps7/FCLK_RESET0_N
set interrupts ps7/IRQ_F2P
