// A board's top with its RGMII as vectors.
module ethernet_board (
  input clk,
  input rx_clk,
  input rx_ctl,
  input [3:0] rx_data,
  output tx_clk,
  output tx_ctl,
  output [3:0] tx_data
);
  rtlstm_board board (
    .clk(clk),
    .eth_rx_clk(rx_clk),
    .eth_rx_ctl(rx_ctl),
    .eth_rx_data0(rx_data[0]),
    .eth_rx_data1(rx_data[1]),
    .eth_rx_data2(rx_data[2]),
    .eth_rx_data3(rx_data[3]),
    .eth_tx_clk(tx_clk),
    .eth_tx_ctl(tx_ctl),
    .eth_tx_data0(tx_data[0]),
    .eth_tx_data1(tx_data[1]),
    .eth_tx_data2(tx_data[2]),
    .eth_tx_data3(tx_data[3])
  );
endmodule
