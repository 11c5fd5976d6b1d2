# @{licence}
# The clock is the processor's, and Vivado knows it from there. These are the pins of the logic.
set_property -dict {PACKAGE_PIN @{led0} IOSTANDARD LVCMOS33} [get_ports {led[0]}]
set_property -dict {PACKAGE_PIN @{led1} IOSTANDARD LVCMOS33} [get_ports {led[1]}]
set_false_path -to [get_ports {led[*]}]
