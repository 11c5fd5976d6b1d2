# @{licence}
# Makes the bitstream of @{name} for the @{board}:
#
#     vivado -mode batch -source build.tcl
#
# The result stands beside this script: @{name}.bit (JTAG), @{name}.bin (Linux' FPGA manager), @{name}.xsa
# (boot loader, device tree), timing.rpt, utilization.rpt; and for PYNQ, in the folder @{overlay}, the bitstream with
# @{name}.hwh. Needs Vivado @{vivado} or newer.

set name @{name}
set part @{part}
set board_part @{board_part}
set top @{top}
set clock_mhz @{mhz}
set base_address @{address}

set here [file dirname [file normalize [info script]]]
create_project -force $name [file join $here vivado] -part $part

# The board's files know its memory and pins of the processor. Without them the logic is the same, but the
# platform is not one to boot from.
set board [lindex [lsort -dictionary [get_board_parts -quiet $board_part:*]] end]
if {$board ne ""} {
    set_property board_part $board [current_project]
} else {
    puts "WARNING: Vivado has no board files for $board_part: load $name.bit into a system that has booted,\
        do not boot with $name.xsa"
}

add_files -norecurse [list [file join $here $name.v] [file join $here top.v]]
add_files -fileset constrs_1 -norecurse [list [file join $here top.xdc]]
update_compile_order -fileset sources_1

create_bd_design system

# The processor, and its pins that the logic uses.
@{processor}
create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset:5.0 reset
create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect:1.0 bus
set_property -dict [list CONFIG.NUM_SI 1 CONFIG.NUM_MI 1] [get_bd_cells bus]
create_bd_cell -type module -reference $top @{core_cell}

connect_bd_intf_net [get_bd_intf_pins $master] [get_bd_intf_pins bus/S00_AXI]
connect_bd_intf_net [get_bd_intf_pins bus/M00_AXI] [get_bd_intf_pins @{core_cell}/s_axi]
foreach pin [list $master_clock reset/slowest_sync_clk bus/aclk @{core_cell}/aclk] {
    connect_bd_net [get_bd_pins $clock] [get_bd_pins $pin]
}
connect_bd_net [get_bd_pins $reset] [get_bd_pins reset/ext_reset_in]
foreach pin {bus/aresetn @{core_cell}/aresetn} {
    connect_bd_net [get_bd_pins reset/peripheral_aresetn] [get_bd_pins $pin]
}
connect_bd_net [get_bd_pins @{core_cell}/irq] [get_bd_pins $interrupts]
create_bd_port -dir O -from 1 -to 0 led
connect_bd_net [get_bd_pins @{core_cell}/led] [get_bd_ports led]

assign_bd_address -offset $base_address -range 4K \
    -target_address_space [get_bd_addr_spaces @{cell}/Data] [get_bd_addr_segs @{core_cell}/s_axi/*]
validate_bd_design
save_bd_design

add_files -norecurse [make_wrapper -files [get_files system.bd] -top]
set_property top system_wrapper [current_fileset]
update_compile_order -fileset sources_1

launch_runs impl_1 -to_step write_bitstream -jobs 4
wait_on_run impl_1
set run [get_runs impl_1]
if {[get_property PROGRESS $run] ne "100%"} {
    puts "ERROR: $name: [get_property STATUS $run]; its log is in [get_property DIRECTORY $run]"
    exit 1
}

set bitstream [file join $here $name.bit]
file copy -force [file join [get_property DIRECTORY $run] system_wrapper.bit] $bitstream
write_cfgmem -force -format BIN -interface SMAPx32 -disablebitswap -loadbit "up 0x0 $bitstream" \
    [file join $here $name.bin]
write_hw_platform -fixed -force -include_bit -file [file join $here $name.xsa]
open_run impl_1
report_timing_summary -file [file join $here timing.rpt]
report_utilization -file [file join $here utilization.rpt]

set setup [get_property STATS.WNS $run]
set hold [get_property STATS.WHS $run]
if {$setup < 0 || $hold < 0} {
    puts "ERROR: $name misses $clock_mhz MHz (slack: setup $setup ns, hold $hold ns); if it is the setup, make this\
        folder again with a lower --clock"
    exit 1
}

# Not beside the .xsa: PYNQ would read that in the place of the .hwh. Releases before 2020.2 keep the latter with the
# sources.
set overlay [file join $here @{overlay}]
set handoff [lindex [glob -directory [file join $here vivado] \
    "$name.{gen,srcs}/sources_1/bd/system/hw_handoff/system.hwh"] 0]
file copy -force $bitstream [file join $overlay $name.bit]
file copy -force $handoff [file join $overlay $name.hwh]

puts "$name meets $clock_mhz MHz with $setup ns to spare: $bitstream"
